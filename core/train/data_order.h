#pragma once
// Which sequence is where in which step: a pure function of (seed, step), so that a run goes on at
// any step on any number of ranks without stored state.

#include <cstdint>

namespace moetwin {

/// The number at `index` of a seeded permutation of [0, n), from a six-round Feistel network over
/// the next even power of two whose results outside [0, n) are walked on; nothing is stored.
int64_t permuted(uint64_t seed, uint64_t epoch, int64_t n, int64_t index);

/// Steps count from 1. Step s takes places [(s-1)*B, s*B) of the endless row that joins the
/// permutations of epoch 0, 1, ...: when fewer than B sequences are left of an epoch, the batch
/// goes on with the first of the next epoch's permutation. In an epoch every sequence comes once.
/// Micro-batch j of the global batch is indices [j*m, (j+1)*m) in every layout (semantics 2).
class BatchOrder {
 public:
  /// `sequences` of the training split must be at least 1. The first `consumed` places are those of
  /// steps up to `step`, which may have had other batches.
  BatchOrder(uint64_t seed, int64_t sequences, int64_t global_batch, int64_t step = 0,
             int64_t consumed = 0);
  int64_t sequence(int64_t step, int64_t index_in_global_batch) const;
  /// Places taken by the steps up to this one.
  int64_t consumed(int64_t step) const { return consumed_ + (step - step_) * batch_; }
  /// Whole passes over the data before this step.
  int64_t epoch(int64_t step) const { return consumed(step - 1) / sequences_; }

 private:
  uint64_t seed_;
  int64_t sequences_, batch_, step_, consumed_;
};

}  // namespace moetwin
