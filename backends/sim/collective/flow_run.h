#pragma once
// What an algorithm needs to move a collective step by step: actors of its own, transfers that take
// their time, and signals between actors. Every algorithm's steps stand beside its plan.

#include <functional>
#include <memory>

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

class FlowRun {
 public:
  virtual ~FlowRun() = default;
  /// Lets `script` run beside the others; the collective ends when all have.
  virtual void spawn(std::function<void()> script) = 0;
  virtual std::shared_ptr<FlowSignal> signal() = 0;
  /// Sends between world ranks; returns when the last byte has left. The piece can be used
  /// machine.latency(from, to) after `now()`.
  virtual void send(int64_t from, int64_t to, double bytes) = 0;
  /// All pairs of world ranks at once; returns when all bytes have left.
  virtual void send_all(const std::vector<int64_t>& from, const std::vector<int64_t>& to,
                        const std::vector<double>& bytes) = 0;
  virtual double now() const = 0;
};

/// Members of a group that flow fidelity takes on: all_to_all_v has n^2 flows.
int64_t most_flow_members(CollectiveKind kind);

void flow_ring(const CollectiveShape& shape, const Machine& machine, FlowRun& run);
void flow_tree(const CollectiveShape& shape, const Machine& machine, FlowRun& run);
void flow_broadcast(const CollectiveShape& shape, const Machine& machine, FlowRun& run);

/// Pieces that trees and chains cut their bytes into.
inline constexpr int kPieces = 64;

}  // namespace moetwin
