#pragma once
// How the ranks of a TP group share a layer: column-parallel weights make each rank's part of the
// width, row-parallel ones turn it into partial sums over the ranks (Megatron-LM, arXiv
// 1909.08053). With sequence parallelism what lies between (norms, dropout, residuals) is done on
// slices of the tokens: rank r of n has tokens [r T / n, (r + 1) T / n) (arXiv 2205.05198).

#include "core/device/communicator.h"
#include "core/nn/context.h"
#include "core/nn/parameter.h"

namespace moetwin {

class TensorParallel {
 public:
  /// One rank alone.
  TensorParallel() = default;
  /// `group`: null where it has one member; its collectives go on the compute stream.
  TensorParallel(Communicator* group, bool sequence)
      : group_(group), sequence_(sequence && group != nullptr) {}

  int64_t size() const { return group_ ? group_->size() : 1; }
  int64_t rank() const { return group_ ? group_->rank() : 0; }
  bool sequence() const { return sequence_; }

  /// A parameter of which each rank has a part.
  AxisUse split() const { return group_ ? AxisUse::sharded : AxisUse::same; }
  /// One that is whole on every rank and works on the rank's part of tokens or heads.
  AxisUse on_parts() const { return group_ ? AxisUse::summed : AxisUse::same; }
  /// One between the split layers: whole, on all tokens or, with sequence parallelism, on a slice.
  AxisUse between() const { return sequence_ ? AxisUse::summed : AxisUse::same; }

  /// This rank's slice of the tokens of x [T,...]: a view. TP divides T.
  Tensor slice(const Tensor& x) const;
  /// First token of that slice, of T tokens.
  int64_t slice_begin(int64_t tokens) const { return tokens / size() * rank(); }
  /// First token of x [N,...], which holds all `tokens` or a slice of them.
  int64_t first_of(const Tensor& x, int64_t tokens) const {
    return x.shape[0] == tokens ? 0 : slice_begin(tokens);
  }

  /// All tokens from the slices.
  Tensor gather(Context& context, const Tensor& slice, const char* purpose,
                MemoryClass memory_class = MemoryClass::activations) const;
  /// This rank's slice of the sum over ranks of x.
  Tensor sum_to_slice(Context& context, const Tensor& x, const char* purpose) const;

  /// What a split layer reads: all tokens. Also the gradient on the way back out of one.
  Tensor enter(Context& context, const Tensor& x) const;
  /// What it leaves: the sum over ranks of partial sums x (which it may overwrite), of all tokens
  /// or of the slice. Also the gradient on the way back into one.
  Tensor leave(Context& context, const Tensor& x) const;

 private:
  Communicator* group_ = nullptr;
  bool sequence_ = false;
};

}  // namespace moetwin
