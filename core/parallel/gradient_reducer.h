#pragma once
// Sums gradients over their groups, bucket by bucket, while backward goes on; gathers parameters
// again after a step with sharded optimizer state. Groups that shard everything are Fsdp's.

#include <deque>
#include <vector>

#include "core/parallel/communicators.h"
#include "core/parallel/flat_parameters.h"

namespace moetwin {

class GradientReducer {
 public:
  /// `beside_forward`: compute does not wait for gathered parameters until a block reads them; with
  /// numerics off alone.
  GradientReducer(std::vector<FlatGroup>& groups, const Communicators& communicators, bool overlap,
                  bool beside_forward = false);

  /// Clears the gradients.
  void begin_step(Context& context);
  /// The backward of `block` (and of all higher ones) of the step's last micro-batch is launched.
  void block_done(Context& context, int64_t block);
  /// Reduces what is left; compute waits for all of it.
  void finish(Context& context);
  /// After the optimizer: every member gets the whole parameters again. Compute waits, or each
  /// block does.
  void gather_parameters(Context& context);
  /// What is launched next may read the block's parameters.
  void before_forward(Context& context, int64_t block);
  /// Weights were written from outside (a checkpoint): what layers read follows them, on all ranks.
  void weights_changed(Context& context);

 private:
  void reduce(Context& context, FlatGroup& group, const FlatBucket& bucket);
  /// Over the first and the last stage, after the reduction inside each.
  void sum_tied(Context& context);
  std::vector<FlatGroup>& groups_;
  const Communicators& communicators_;
  bool overlap_, beside_forward_;
  /// Gathers under way, in their order: until when a block waits, and those before it.
  struct Gathered {
    int64_t lowest_block;
    Event done;
  };
  std::deque<Gathered> gathered_;
  std::vector<size_t> next_;  ///< first bucket of each group that is not reduced yet
};

}  // namespace moetwin
