#include "core/nn/linear.h"

namespace moetwin {

Linear::Linear(ParameterSet& parameters, const LinearConfig& config)
    : in_(config.in), out_(config.out) {
  Parameter weight;
  weight.name = config.name + ".weight";
  weight.block = config.block;
  weight.shape = {in_, out_};
  weight.global = weight.local = {1, in_, out_};
  weight.init_std = config.init_std;
  weight_ = &parameters.add(std::move(weight));
  if (!config.bias) return;
  Parameter bias;
  bias.name = config.name + ".bias";
  bias.block = config.block;
  bias.one_dimensional = true;
  bias.shape = {out_};
  bias.global = bias.local = {1, 1, out_};
  bias_ = &parameters.add(std::move(bias));
}

Tensor Linear::forward(Context& context, const Tensor& x, Epilogue epilogue, Tensor pre) const {
  Tensor y = context.activation({x.shape[0], out_}, "linear output");
  GemmAttr attr;
  attr.epilogue = epilogue;
  context.launch(gemm(x, weight_->value, bias_ ? bias_->value : Tensor{}, y, pre, attr));
  return y;
}

Tensor Linear::backward(Context& context, const Tensor& x, const Tensor& dy) const {
  Tensor dx = context.activation({x.shape[0], in_}, "linear input gradient");
  GemmAttr input;
  input.transpose_b = true;
  context.launch(gemm(dy, weight_->value, {}, dx, {}, input));
  GemmAttr weight;
  weight.transpose_a = true;
  weight.accumulate = true;
  context.launch(gemm(x, dy, {}, weight_->gradient, {}, weight));
  if (bias_) context.launch(bias_grad(dy, bias_->gradient));
  return dx;
}

}  // namespace moetwin
