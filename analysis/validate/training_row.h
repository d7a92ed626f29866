#pragma once
// A row about training (dense_training.csv, moe_training.csv, memory.csv) as a scenario: the words
// of its framework in ours.

#include <string>

#include "analysis/validate/published.h"
#include "core/scenario/scenario.h"

namespace moetwin {

struct TrainingRow {
  std::string reason;  ///< why it cannot be expressed; empty: it can
  bool other_hardware = false;
  std::string caveat;  ///< what had to be assumed, and what the source says of its worth
  Scenario scenario;
  /// Rows an expert's buffer has over even routing by one choice, where buffers are padded to the
  /// capacity; 0: they are not, and the scenario says all.
  double padded_choices = 0;
};

/// Model, layout, batch, sharding, recompute, kernels and machine of a row. Megatron's DP is our
/// dense DP. What the row does not state and its framework has a default for is taken from there
/// and named in `caveat`. Throws UnreadableField.
TrainingRow read_training_row(const PublishedRow& row);

/// Seconds of an iteration: `iter_time_s`, else from tokens/s, samples/s or TFLOP/s of the row, in
/// this order; 0: it states none. TFLOP/s by the row's own definition: Megatron's
/// formula with (factor 4) or without (factor 3) recomputation.
double iteration_seconds(const PublishedRow& row, const Scenario& scenario);

/// FLOP of one iteration by Narayanan et al. 2021: factor x 24 B s l h^2 (1 + s/(6h) + V/(factor x
/// 4 l h)) for 4h-wide FFNs; with `factor` 4 of hardware (full recomputation), 3 of the model.
double megatron_flop(const Scenario& scenario, double factor);

}  // namespace moetwin
