#pragma once
// A LayerNorm or RMSNorm layer.

#include "core/nn/context.h"
#include "core/nn/parameter.h"
#include "core/ops/norm.h"
#include "core/scenario/scenario.h"

namespace moetwin {

class Norm {
 public:
  /// What the backward needs.
  struct Saved {
    Tensor x, mean, rstd;
    Tensor kept;  ///< by other frameworks' kernels
  };
  Norm() = default;
  /// `tensor`: what the ranks of a TP group see, all tokens or slices.
  Norm(ParameterSet& parameters, const ModelConfig& model, const std::string& name, int64_t block,
       AxisUse tensor = AxisUse::same);
  /// An RMS norm of `size` elements.
  Norm(ParameterSet& parameters, const std::string& name, int64_t size, double epsilon,
       int64_t block, AxisUse tensor);

  /// x [T,H] -> [T,H].
  Tensor forward(Context& context, const Tensor& x, Saved& saved) const;
  Tensor backward(Context& context, const Saved& saved, const Tensor& dy) const;

 private:
  NormAttr attr_;
  Parameter* gamma_ = nullptr;
  Parameter* beta_ = nullptr;
};

/// Declares a one-dimensional parameter of n elements with a constant start, whole on every rank.
Parameter& add_vector(ParameterSet& parameters, const std::string& name, int64_t n,
                      double init_value, int64_t block, AxisUse tensor = AxisUse::same);

}  // namespace moetwin
