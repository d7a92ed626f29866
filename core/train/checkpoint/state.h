#pragma once
// The tensors of a training as checkpoints see them: what this rank owns of each, and the way back.

#include <string>
#include <vector>

#include "core/moe/balance.h"
#include "core/parallel/flat_parameters.h"
#include "core/parallel/gradient_reducer.h"
#include "core/topology/grid.h"
#include "core/train/checkpoint/checkpoint.h"
#include "core/train/checkpoint/save.h"

namespace moetwin {

class TrainingState {
 public:
  TrainingState(Context& context, std::vector<FlatGroup>& groups, GradientReducer& reducer,
                BalanceState& balance, const ModelConfig& model, const Coordinates& at)
      : context_(context),
        groups_(groups),
        reducer_(reducer),
        balance_(balance),
        model_(model),
        experts_(model.moe_layer_config.num_experts),
        at_(at) {}

  /// Weights as the optimizer keeps them, moments, and what routing keeps; waits for them.
  /// With numerics none: takes the time of the copies and returns what has no elements.
  std::vector<OwnedPart> owned();
  /// Bytes that owned() read on this rank.
  int64_t owned_bytes() const { return owned_bytes_; }
  /// Every rank calls it: reads its parts and gathers the rest. Throws as Checkpoint::read.
  void restore(const Checkpoint& checkpoint);

 private:
  /// Where a piece of a routing state lies in its tensor on this rank, and in the whole.
  struct Place {
    TensorPart here, whole;
  };
  std::vector<Place> places(const RoutingState& state) const;
  std::string read(const Tensor& tensor);

  Context& context_;
  std::vector<FlatGroup>& groups_;
  GradientReducer& reducer_;
  BalanceState& balance_;
  const ModelConfig& model_;
  int64_t experts_;
  Coordinates at_;
  int64_t owned_bytes_ = 0;
};

}  // namespace moetwin
