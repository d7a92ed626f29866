#include "core/moe/experts.h"

#include "core/ops/activation.h"

namespace moetwin {

GroupedExperts::GroupedExperts(ParameterSet& parameters, const ModelConfig& model, const Grid& grid,
                               const Coordinates& at, const std::string& name,
                               double output_init_std, int64_t block)
    : activation_(model.moe_layer_config.expert_activation),
      hidden_(model.hidden_size),
      block_(block) {
  const MoeLayerConfig& moe = model.moe_layer_config;
  const int64_t experts = moe.num_experts, local = grid.local_experts();
  const int64_t first = grid.first_expert(at.ep);
  const int64_t rows = grid.hidden_sharding() * grid.etp();
  const int64_t row = grid.hidden_row(at.ep) * grid.etp() + at.etp;
  const int64_t full = model.expert_width();
  const int64_t parts = activation_ == "swiglu" ? 2 : 1;  // gate | up are sliced apart
  width_ = full / rows;
  up_width_ = parts * width_;
  const auto base = [&](const char* suffix) {
    Parameter p;
    p.name = name + suffix;
    p.kind = ParameterKind::expert;
    p.grid = GridKind::expert;
    p.tensor = AxisUse::sharded;
    p.block = block;
    return p;
  };
  Parameter w1 = base(".w1");
  w1.shape = {local, hidden_, up_width_};
  w1.global = {experts * hidden_, parts, full};
  w1.offset = {first * hidden_, 0, row * width_};
  w1.local = {local * hidden_, parts, width_};
  w1.init_std = model.init_std * moe.expert_init_scale;
  w1_ = &parameters.add(std::move(w1));
  Parameter w2 = base(".w2");
  w2.shape = {local, width_, hidden_};
  w2.global = {experts, full, hidden_};
  w2.offset = {first, row * width_, 0};
  w2.local = {local, width_, hidden_};
  w2.init_std = output_init_std * moe.expert_init_scale;
  w2_ = &parameters.add(std::move(w2));
  if (!moe.expert_bias) return;
  Parameter b1 = base(".b1");
  b1.one_dimensional = true;
  b1.shape = {local, up_width_};
  b1.global = {experts, parts, full};
  b1.offset = {first, 0, row * width_};
  b1.local = {local, parts, width_};
  b1_ = &parameters.add(std::move(b1));
  if (row != 0)
    return;  // partial results are summed: the second bias is added once, by hidden row 0
  Parameter b2 = base(".b2");
  b2.one_dimensional = true;
  b2.shape = {local, hidden_};
  b2.global = {1, experts, hidden_};
  b2.offset = {0, first, 0};
  b2.local = {1, local, hidden_};
  b2_ = &parameters.add(std::move(b2));
}

Tensor GroupedExperts::forward(Context& context, const Tensor& x, const HostSizes& rows,
                               ExpertsSaved& saved) {
  context.before_experts(block_);
  const int64_t n = x.shape[0];
  const Tensor bias = b1_ ? b1_->value : Tensor{};
  saved.x = x;
  saved.pre = context.activation({n, up_width_}, "expert before activation");
  saved.hidden = context.activation({n, width_}, "expert hidden");
  if (activation_ == "swiglu") {
    context.launch(grouped_gemm(x, w1_->value, bias, saved.pre, {}, {}, rows));
    saved.kept = context.launch_keeping(swiglu(saved.pre, saved.hidden));
  } else {
    GroupedGemmAttr attr;
    attr.epilogue = activation_ == "gelu_tanh" ? Epilogue::gelu_tanh : Epilogue::gelu;
    context.launch(grouped_gemm(x, w1_->value, bias, saved.hidden, saved.pre, attr, rows));
  }
  Tensor y = context.activation({n, hidden_}, "expert output");
  context.launch(
      grouped_gemm(saved.hidden, w2_->value, b2_ ? b2_->value : Tensor{}, y, {}, {}, rows));
  return y;
}

Tensor GroupedExperts::backward(Context& context, const ExpertsSaved& saved, const Tensor& dy,
                                const HostSizes& rows) {
  context.before_experts(block_);
  const int64_t n = dy.shape[0];
  Tensor hidden = saved.hidden;
  if (!hidden.defined()) {
    const PhaseScope phase(context.device, context.phase, Phase::recompute, "recompute");
    hidden = context.activation({n, width_}, "expert hidden");
    GeluAttr attr;
    attr.tanh_form = activation_ == "gelu_tanh";
    context.launch(activation_ == "swiglu" ? swiglu(saved.pre, hidden)
                                           : gelu(saved.pre, hidden, attr));
  }
  GroupedGemmAttr transposed;
  transposed.transpose_b = true;
  Tensor d_hidden = context.activation({n, width_}, "expert hidden gradient");
  context.launch(grouped_gemm(dy, w2_->value, {}, d_hidden, {}, transposed, rows));
  context.launch_parameter_gradient(grouped_gemm_weight_grad(hidden, dy, w2_->gradient, rows));
  if (b2_) context.launch_parameter_gradient(grouped_bias_grad(dy, b2_->gradient, rows));
  Tensor d_pre = d_hidden;
  if (activation_ == "swiglu") {
    d_pre = context.activation({n, up_width_}, "expert gradient before activation");
    context.launch(swiglu_backward(saved.pre, d_hidden, d_pre));
  } else {
    GeluAttr attr;
    attr.tanh_form = activation_ == "gelu_tanh";
    context.launch(gelu_backward(saved.pre, d_hidden, d_pre, attr));
  }
  context.launch_parameter_gradient(grouped_gemm_weight_grad(saved.x, d_pre, w1_->gradient, rows));
  if (b1_) context.launch_parameter_gradient(grouped_bias_grad(d_pre, b1_->gradient, rows));
  Tensor dx = context.activation({n, hidden_}, "expert input gradient");
  context.launch(grouped_gemm(d_pre, w1_->value, {}, dx, {}, transposed, rows));
  return dx;
}

}  // namespace moetwin
