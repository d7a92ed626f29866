#pragma once
// What all ranks of one run share: the machine, SimGrid's actors, the task graph, the groups, and
// the lists of collectives that start or end.

#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "backends/sim/cluster.h"
#include "backends/sim/cost/corrections.h"
#include "backends/sim/cost/framework.h"
#include "backends/sim/runtime/actors.h"
#include "backends/sim/runtime/rendezvous.h"
#include "backends/sim/runtime/task_graph.h"

namespace moetwin {

class SimBackend;

class Simulation {
 public:
  struct Settings {
    bool numerics = true;
    bool memory_report = false;  ///< reservations beyond the memory succeed
    DType compute_dtype = DType::f32;
    KernelChoice kernels;
    NcclChoice choice;
    Fidelity fidelity = Fidelity::fluid;
    int64_t stages = 1;  ///< of the pipeline
    TensorParallelBeside tensor_parallel{};
    bool copies_gathered = false;   ///< as gathered_are_copied says of the scenario
    double stage_pass_seconds = 0;  ///< host time of a pass where there are stages
    bool blocking_wait = false;     ///< the host waits for collectives on the compute stream
  };
  Simulation(const Machine& machine, Settings settings, const SimOptions& options);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  void run(const std::function<void(Backend&)>& program);
  /// Instead of programs on backends: `body(rank)` on every rank's actor, and `body(world + i)` on
  /// `beside` more, which need not end.
  void run(const std::function<void(int64_t)>& body, int64_t beside);

  const Machine& machine() const { return machine_; }
  const Settings& settings() const { return settings_; }
  const Corrections& corrections() const { return corrections_; }
  Actors& actors() { return actors_; }
  TaskGraph& tasks() { return *tasks_; }
  Rendezvous& rendezvous() { return rendezvous_; }
  const std::vector<std::unique_ptr<SimBackend>>& backends() const { return backends_; }
  /// Null where there is none.
  Reference reference(const Op& op);

  /// All members of a collective have arrived: it ends at once or is carried by the network.
  void all_arrived(Collective* collective);
  /// Has `rank` go on as soon as settle() is through.
  void wake_later(int64_t rank) { to_wake_.push_back(rank); }
  /// Passes ended collectives on to the members' streams, starts new ones and wakes ranks. Other
  /// actors may run meanwhile, so it is the last thing an operation does.
  void settle();

 private:
  void fail(std::exception_ptr error);

  const Machine& machine_;
  Settings settings_;
  const Corrections corrections_;
  const SimOptions& options_;
  Actors actors_;
  std::unique_ptr<TaskGraph> tasks_;
  Rendezvous rendezvous_;
  std::vector<std::unique_ptr<SimBackend>> backends_;
  std::deque<Collective*> ended_, to_start_;
  std::deque<int64_t> to_wake_;
  std::exception_ptr error_;
  struct Known {
    const Op* op = nullptr;
    Reference reference = nullptr;
  };
  std::vector<Known> references_;  ///< by Op::index
};

/// Why no rank can go on: who waits for whom in which collective, and the cycle where there is one.
std::string describe_deadlock(const Simulation& simulation);

}  // namespace moetwin
