#pragma once
// What an algorithm needs to move a collective step by step: actors of its own, transfers that take
// their time, and signals between actors. Every algorithm's steps stand beside its plan.

#include <functional>
#include <memory>
#include <vector>

#include "backends/sim/collective/plan.h"

namespace moetwin {

/// Pieces that arrived, in order, each usable from a given time on.
class FlowSignal {
 public:
  virtual ~FlowSignal() = default;
  virtual void post(double usable_from) = 0;
  /// Waits for the next piece and until it can be used.
  virtual void wait() = 0;
};

/// Bytes from one world rank to another, over the share of the links that is reached.
struct FlowBytes {
  int64_t from = 0, to = 0;
  double bytes = 0;
};
using Flows = std::vector<FlowBytes>;

/// A step between two world ranks.
struct Hop {
  Hop(const ProtocolFigures& figures, const Machine& machine, int64_t from, int64_t to)
      : latency((machine.same_node(from, to) ? figures.nvlink_step : figures.nic_step).value),
        share(machine.same_node(from, to) ? figures.nvlink_share : figures.nic_share) {}
  double latency, share;
  /// The link is taken up as long as by so many bytes at its full rate.
  double taken_up(double bytes) const { return bytes / share; }
};

class FlowRun {
 public:
  virtual ~FlowRun() = default;
  /// Lets `script` run beside the others; the collective ends when all have.
  virtual void spawn(std::function<void()> script) = 0;
  virtual std::shared_ptr<FlowSignal> signal() = 0;
  /// Sends between world ranks; returns when the last byte has left. The piece can be used
  /// a step's latency after `now()`.
  virtual void send(int64_t from, int64_t to, double bytes) = 0;
  /// All at once; returns when all bytes have left.
  virtual void send_all(const Flows& flows) = 0;
  virtual void sleep(double seconds) = 0;
  virtual double now() const = 0;
};

/// Members of a group that flow fidelity takes on: all_to_all_v has n^2 flows.
int64_t most_flow_members(CollectiveKind kind);

void flow_ring(const CollectiveShape& shape, const Machine& machine, const ProtocolFigures& figures,
               FlowRun& run);
void flow_tree(const CollectiveShape& shape, const Machine& machine, const ProtocolFigures& figures,
               FlowRun& run);
void flow_nvls(const CollectiveShape& shape, const Machine& machine, const ProtocolFigures& figures,
               FlowRun& run);
void flow_broadcast(const CollectiveShape& shape, const Machine& machine,
                    const ProtocolFigures& figures, FlowRun& run);
void flow_all_to_all(const CollectiveShape& shape, const Machine& machine,
                     const AllToAllChoice& way, const Plan& plan, FlowRun& run);
void flow_send(const CollectiveShape& shape, const Machine& machine, const ProtocolFigures& figures,
               FlowRun& run);

}  // namespace moetwin
