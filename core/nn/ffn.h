#pragma once
// The dense feed-forward network: also the shared expert of an MoE layer. Under TP each rank has a
// part of the width and leaves a partial sum.

#include "core/nn/linear.h"
#include "core/scenario/scenario.h"

namespace moetwin {

struct FfnConfig {
  std::string name;
  int64_t hidden = 0, width = 0;
  std::string activation = "gelu";  ///< gelu | gelu_tanh | swiglu
  bool bias = true;
  double init_std = 0.02;
  double output_init_std = 0.02;  ///< of the projection back to the residual stream
  int64_t block = 0;
};

class Ffn {
 public:
  struct Saved {
    Tensor x, pre, hidden;
    Tensor kept;  ///< by other frameworks' kernels
  };
  Ffn() = default;
  Ffn(ParameterSet& parameters, const FfnConfig& config, const TensorParallel& tp = {});

  Tensor forward(Context& context, const Tensor& x, Saved& saved) const;
  Tensor backward(Context& context, const Saved& saved, const Tensor& dy) const;
  /// The forward as far as the backward needs it: all but the last product.
  void forward_hidden(Context& context, const Tensor& x, Saved& saved) const;

  /// Elements a token of the first product, which alternate_products keeps: the gate's.
  int64_t kept_width() const { return width_; }
  /// The forward again where these were kept, but for the last product. Without numerics.
  void remake(Context& context, const Tensor& x, Saved& saved) const;

 private:
  FfnConfig config_;
  int64_t width_ = 0;  ///< of this rank
  Linear up_, down_;
};

}  // namespace moetwin
