#pragma once
// Dropout whose mask is a function of (seed, step, layer and site, global element): equal in every
// layout.

#include "core/nn/context.h"
#include "core/ops/elementwise.h"

namespace moetwin {

/// Where in a layer; with the layer number it makes the sub-stream.
enum class DropoutSite : uint32_t { embedding = 0, attention = 1, ffn = 2 };

class Dropout {
 public:
  Dropout() = default;
  Dropout(double p, int64_t layer, DropoutSite site)
      : p_(p), stream_(static_cast<uint32_t>(layer) * 4 + static_cast<uint32_t>(site)) {}

  bool active(const MicroBatch& batch) const { return p_ > 0 && batch.training; }
  /// y = x with dropped elements zero and the others scaled; [N,H], tokens of the micro-batch from
  /// `first` on. The backward is the same on the gradient.
  /// Returns what a framework keeps of it: the mask.
  Tensor apply_to(Context& context, const MicroBatch& batch, int64_t first, const Tensor& x,
                  const Tensor& y) const {
    DropoutAttr attr;
    attr.key =
        philox_key(context.seed, Purpose::dropout, stream_, static_cast<uint32_t>(batch.step));
    attr.p = p_;
    attr.element_offset = (batch.first_token() + first) * x.shape[1];
    return context.launch_keeping(dropout(x, y, attr));
  }
  /// In place; does nothing at p = 0 or outside training.
  Tensor apply(Context& context, const MicroBatch& batch, int64_t first, const Tensor& x) const {
    return active(batch) ? apply_to(context, batch, first, x, x) : Tensor{};
  }

 private:
  double p_ = 0;
  uint32_t stream_ = 0;
};

}  // namespace moetwin
