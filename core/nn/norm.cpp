#include "core/nn/norm.h"

namespace moetwin {

Parameter& add_vector(ParameterSet& parameters, const std::string& name, int64_t n,
                      double init_value, int64_t block, AxisUse tensor) {
  Parameter p;
  p.name = name;
  p.block = block;
  p.tensor = tensor;
  p.one_dimensional = true;
  p.shape = {n};
  p.global = p.local = {1, 1, n};
  p.init_value = init_value;
  return parameters.add(std::move(p));
}

Norm::Norm(ParameterSet& parameters, const ModelConfig& model, const std::string& name,
           int64_t block, AxisUse tensor) {
  attr_.kind = model.normalization == "rmsnorm" ? NormKind::rms : NormKind::layer;
  attr_.epsilon = model.norm_epsilon;
  gamma_ = &add_vector(parameters, name + ".gamma", model.hidden_size, 1, block, tensor);
  if (attr_.kind == NormKind::layer)
    beta_ = &add_vector(parameters, name + ".beta", model.hidden_size, 0, block, tensor);
}

Norm::Norm(ParameterSet& parameters, const std::string& name, int64_t size, double epsilon,
           int64_t block, AxisUse tensor)
    : attr_{NormKind::rms, epsilon},
      gamma_(&add_vector(parameters, name + ".gamma", size, 1, block, tensor)) {}

Tensor Norm::forward(Context& context, const Tensor& x, Saved& saved) const {
  Tensor y = context.activation(x.shape, "norm output");
  const auto statistic = [&](const char* name) {
    return context.memory.allocate({x.shape[0]}, context.real(), MemoryClass::activations, name);
  };
  saved.x = x;
  saved.rstd = statistic("norm rstd");
  saved.mean = attr_.kind == NormKind::layer ? statistic("norm mean") : Tensor{};
  saved.kept = context.launch_keeping(
      norm(x, gamma_->value, beta_ ? beta_->value : Tensor{}, y, saved.mean, saved.rstd, attr_));
  return y;
}

Tensor Norm::backward(Context& context, const Saved& saved, const Tensor& dy) const {
  Tensor dx = context.activation(saved.x.shape, "norm input gradient");
  context.launch(norm_backward(saved.x, gamma_->value, saved.mean, saved.rstd, dy, dx,
                               gamma_->gradient, beta_ ? beta_->gradient : Tensor{}, attr_));
  return dx;
}

}  // namespace moetwin
