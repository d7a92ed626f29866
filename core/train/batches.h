#pragma once
// The micro-batches of one rank: which sequences of the global batch they are, and their tokens on
// the device.

#include <functional>
#include <memory>

#include "core/nn/context.h"
#include "core/scenario/scenario.h"
#include "core/topology/grid.h"
#include "core/train/data.h"
#include "core/train/data_order.h"

namespace moetwin {

/// Sequences to evaluate: the i-th of `count` is number(i) of its split.
struct Sequences {
  Split split = Split::validation;
  int64_t count = 0;
  std::function<int64_t(int64_t)> number;
};

class Batches {
 public:
  /// `data` may be null with numerics none. `ddp`: this rank's coordinate.
  Batches(const Scenario& scenario, const Grid& grid, int64_t ddp, const TokenSource* data);
  /// Of BatchOrder.
  void go_on_from(int64_t step, int64_t consumed);
  bool has_data() const { return data_ != nullptr; }
  /// Sequences used by the steps up to this one.
  int64_t consumed(int64_t step) const { return order_ ? order_->consumed(step) : 0; }

  /// Of the global batch.
  int64_t nominal_tokens() const { return nominal_tokens_; }
  /// Micro-batches of a step on each rank.
  int64_t per_step() const { return per_step_; }
  MicroBatch training(int64_t step, int64_t index) const;

  /// Sequences of the validation loss; none without data.
  Sequences validation() const;
  /// The first ones of step 1 of a training from its start.
  Sequences first(int64_t count) const;
  /// Micro-batches that every rank runs for them, since experts are shared: the last ones with
  /// fewer sequences or none. Sequences that do not count would take places of experts.
  int64_t rounds(const Sequences& sequences) const;
  MicroBatch evaluation(int64_t step, int64_t round, const Sequences& sequences) const;

  /// i32 [T]; undefined where not asked for.
  struct Tokens {
    Tensor ids, targets;
  };
  /// Reads the batch's sequences (of `sequences`; null: of its training step), notes the valid
  /// tokens in it, and writes what is asked for to the device, on the compute stream.
  Tokens load(Context& context, MicroBatch& batch, const Sequences* sequences, bool ids,
              bool targets) const;

 private:
  const ModelConfig& model_;
  const TrainingConfig& training_;
  const TokenSource* data_;
  int64_t length_;        ///< of the part of a sequence that a rank has
  int64_t rank_, ranks_;  ///< among those with sequences of their own
  int64_t nominal_tokens_, per_step_;
  std::unique_ptr<BatchOrder> order_;
};

}  // namespace moetwin
