#pragma once
// One modelled GPU and its host thread. Stream time is added up here; SimGrid is entered only where
// the host has to wait for something that is not known yet.

#include <memory>
#include <string>
#include <vector>

#include "backends/sim/runtime/beside_products.h"
#include "backends/sim/runtime/priced_launch.h"
#include "backends/sim/runtime/simulation.h"
#include "backends/sim/runtime/stream_queue.h"
#include "core/device/backend.h"

namespace moetwin {

DeviceProperties sim_properties(const Machine& machine, const Simulation::Settings& settings,
                                int64_t rank);

/// Buffers of the collective library for one more communicator of this group.
int64_t communicator_bytes(const GpuProfile& gpu, const Group& group);
/// Host memory for a tensor; without numerics only those of class control have any.
std::shared_ptr<void> host_storage(bool numerics, int64_t bytes, MemoryClass memory_class);
/// Something that has storage is written: the op's arithmetic runs without numerics too.
bool writes_storage(const OpCall& call);

class SimBackend : public Backend {
 public:
  SimBackend(Simulation& simulation, int64_t rank);

  const DeviceProperties& properties() const override { return properties_; }
  bool supports(const Op& op) const override;
  Block reserve(int64_t bytes) override;
  void release(const Block& block) override;
  std::shared_ptr<void> storage(const Block& block, int64_t offset, int64_t bytes,
                                MemoryClass memory_class) override;
  Stream stream(const char* name) override;
  void launch(const OpCall& call, Stream stream) override;
  /// The same launch where its price is known and there is nothing to compute.
  void launch(const PricedLaunch& priced, Stream stream);
  Event record(Stream stream) override;
  void wait(Stream stream, Event event) override;
  void synchronize(Stream stream) override;
  void write(const Tensor& tensor, const void* host, Stream stream) override;
  void read(const Tensor& tensor, void* host, Stream stream) override;
  /// Time alone of a write, and of a read that is then waited for.
  void write_bytes(int64_t bytes, Stream stream);
  void read_bytes(int64_t bytes, Stream stream);
  double now() override { return host_; }
  void host_work(double seconds, Activity activity) override;
  void phase(Phase phase, const char* label) override;
  Profile take_profile(bool detailed) override;
  std::unique_ptr<Communicator> communicator(const Group& group, const std::string& name) override;
  [[noreturn]] void abort(const std::string& message) override;

  /// What the members of a group that this rank is in share; `index`: this rank's there.
  GroupState& join(const Group& group, const std::string& name, int64_t& index);

  int64_t rank() const { return properties_.rank; }
  /// One member's side of a collective, from SimCommunicator.
  void collective(GroupState& group, int64_t rank_in_group, const CollectiveCall& call,
                  Stream stream);
  /// The collective at the front of the stream has ended.
  void complete(int32_t stream, const Collective& collective);
  /// The program has returned: waits for all that was launched.
  void finish();
  TaskKey next_key() { return {properties_.rank, ++order_}; }
  /// Makes `task` the latest of the stream, after all that stand before it.
  void chain(int32_t stream, const TaskGraph::Handle& task);

  // For the description of a deadlock.
  bool finished() const { return finished_; }
  const std::vector<StreamQueue>& streams() const { return streams_; }
  /// "all_reduce 3 of group ep0 ("gradients")"; empty: none was called.
  std::string last_called() const;

 private:
  StreamQueue& queue(Stream stream);
  void push(int32_t stream, const QueueItem& item);
  void resolve(StreamQueue& queue, int32_t stream, const QueueItem& item);
  void advance(int32_t stream);
  void resolve_event(int64_t event, double time);
  void ended(StreamQueue& queue, double end);
  /// How a collective on a stream goes on beside its products; none but on the compute stream.
  BesideProducts::Way way_of(int32_t stream, const Collective& collective, Phase phase) const;
  /// What other streams' kernels lost beside a collective that has ended, now that it is known.
  void slow_down(int32_t stream, const Collective& collective, size_t member);
  void wait_for(int32_t stream, int64_t resolved);
  void make_room(int32_t stream);
  void copy(int64_t bytes, const char* name, int32_t stream);
  /// The host's part of a launch; returns the stream's.
  QueueItem begin(const PricedLaunch& priced);
  void busy(double seconds, Activity activity);
  /// What the host does before the first launch of a forward or backward.
  void begin_pass();
  /// Gathered parameters leave the buffer that they arrive in.
  void copy_gathered(int64_t bytes);
  void note_traffic(const Collective& collective, size_t member);
  bool runs(const OpCall& call) const;
  /// Factor of the machine's profile on the time of a work item.
  double correction(const QueueItem& item) const;
  void add_task(const OpCall& call, int32_t stream);
  void join(StreamQueue& queue);
  EventState* event(int64_t id);

  Simulation& simulation_;
  const GpuProfile& gpu_;
  DeviceProperties properties_;
  double slowness_ = 1;
  double kernel_host_seconds_ = 0, backward_host_seconds_ = 0, collective_host_seconds_ = 0;
  double pass_host_seconds_ = 0;
  bool passes_wait_ = false, pass_begins_ = false;
  std::vector<RateChange> rate_changes_;  ///< of this GPU
  /// How much longer work takes that starts at `time`.
  double slowness_at(double time) const;
  double host_ = 0;
  std::vector<StreamQueue> streams_;
  std::deque<EventState> events_;
  int64_t first_event_ = 0;
  int64_t order_ = 0;
  int64_t in_flight_ = 0;        ///< collectives that have not ended
  double oldest_in_flight_ = 0;  ///< none of them began before
  int64_t reserved_ = 0, next_block_ = 0;
  Phase phase_ = Phase::other;
  bool detailed_ = false, finished_ = false;
  int32_t waiting_stream_ = -1;  ///< the host waits until `waiting_resolved_` items of it are
  int64_t waiting_resolved_ = 0;
  bool waiting_empty_ = false;  ///< ... or until it is empty
  IntervalLog host_log_;
  LaunchPricer pricer_;
  BesideProducts beside_products_;
  std::vector<PricedKernel> kernels_;
  struct TrafficCount {
    const GroupState* group;
    CollectiveKind kind;
    const char *purpose, *way;
    int64_t calls;
    double bytes, bytes_off_node, seconds;
  };
  std::vector<TrafficCount> traffic_;
  struct LastCall {
    const GroupState* group = nullptr;
    CollectiveKind kind = CollectiveKind::barrier;
    uint64_t number = 0;
    const char* purpose = "";
  };
  LastCall last_call_;
};

}  // namespace moetwin
