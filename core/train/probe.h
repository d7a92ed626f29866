#pragma once
// The probe: a fixed batch, the same in every layout, that is routed before a step with the weights
// of that step and without noise, jitter or dropout. What its choices do is the router's doing
// alone. It changes nothing and is in none of the step's figures.

#include <cstdint>
#include <map>
#include <vector>

#include "core/moe/balance.h"
#include "core/nn/context.h"
#include "core/record/rank_step.h"
#include "core/scenario/scenario.h"

namespace moetwin {

/// Sequences of the probe batch: routing.probe.sequences, or its default. 0: there is no probe
/// (off, numerics none, no MoE layer, or no learned router).
int64_t probe_sequences(const Scenario& scenario);

/// One per rank.
class Probe {
 public:
  explicit Probe(const Scenario& scenario);

  int64_t sequences() const { return sequences_; }
  /// Steps are probed from the first on.
  bool due(int64_t step) const {
    return sequences_ > 0 && (step - 1) % scenario_.routing.probe.every_steps == 0;
  }
  /// Where the forward of the probe batch, and the backward of a probed step, leave what they saw.
  RoutingWatch& watch() { return watch_; }
  /// After the forward of one micro-batch of the probe batch.
  void read(Context& context, const MicroBatch& batch);
  /// After a probed step: adds what this rank knows to its layers, which hold the step's counts.
  void hand_over(Context& context, const BalanceState& balance, std::vector<LayerStep>& layers);

 private:
  const Scenario& scenario_;
  int64_t sequences_ = 0;
  RoutingWatch watch_;
  std::map<int64_t, std::vector<ProbeSequence>> seen_;  ///< by layer: of this step
  /// By layer and sequence: first choices at the last probe.
  std::map<std::pair<int64_t, int64_t>, std::vector<int32_t>> last_;
};

}  // namespace moetwin
