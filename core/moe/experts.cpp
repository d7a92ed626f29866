#include "core/moe/experts.h"

#include <numeric>

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

std::vector<Parameter*> GroupedExperts::parameters() {
  std::vector<Parameter*> all{w1_, w2_};
  if (b1_) all.insert(all.end(), {b1_, b2_});
  return all;
}

std::vector<GroupedExperts::Part> GroupedExperts::parts(const HostSizes& rows,
                                                        const ExpertsSaved& saved) const {
  const auto sum = [](const HostSizes& of) {
    return std::accumulate(of->begin(), of->end(), int64_t{0});
  };
  const auto of = [](const Parameter* p, bool gradient) {
    return !p ? Tensor{} : gradient ? p->gradient : p->value;
  };
  std::vector<Part> all(1);
  Part& own = all.front();
  own.count = sum(rows);
  own.rows = rows;
  own.w1 = of(w1_, false), own.b1 = of(b1_, false), own.w2 = of(w2_, false),
  own.b2 = of(b2_, false);
  own.dw1 = of(w1_, true), own.db1 = of(b1_, true), own.dw2 = of(w2_, true),
  own.db2 = of(b2_, true);
  if (!saved.guest_rows || sum(saved.guest_rows) == 0) return all;
  Part guests;
  guests.first = own.count;
  guests.count = sum(saved.guest_rows);
  guests.rows = saved.guest_rows;
  const auto n = static_cast<int64_t>(saved.guest_rows->size());
  const std::vector<Tensor>&values = saved.guests->values, &gradients = saved.guests->gradients;
  const Shape first{n, hidden_, up_width_}, second{n, width_, hidden_};
  guests.w1 = values[0].reshaped(first), guests.dw1 = gradients[0].reshaped(first);
  guests.w2 = values[1].reshaped(second), guests.dw2 = gradients[1].reshaped(second);
  if (b1_) {
    guests.b1 = values[2], guests.db1 = gradients[2];
    guests.b2 = values[3], guests.db2 = gradients[3];
  }
  all.push_back(std::move(guests));
  return all;
}

Tensor GroupedExperts::forward(Context& context, const Tensor& x, const HostSizes& rows,
                               ExpertsSaved& saved) {
  context.before_experts(block_);
  const int64_t n = x.shape[0];
  saved.x = x;
  saved.pre = context.activation({n, up_width_}, "expert before activation");
  saved.hidden = context.activation({n, width_}, "expert hidden");
  const std::vector<Part> all = parts(rows, saved);
  const bool swiglu_form = activation_ == "swiglu";
  for (const Part& p : all) {
    // This rank's own work does not wait for its guests.
    if (&p != all.data()) context.device.wait(context.streams.compute, saved.guests->arrived);
    const Tensor in = x.rows(p.first, p.count), pre = saved.pre.rows(p.first, p.count);
    if (swiglu_form) {
      context.launch(grouped_gemm(in, p.w1, p.b1, pre, {}, {}, p.rows));
    } else {
      GroupedGemmAttr attr;
      attr.epilogue = activation_ == "gelu_tanh" ? Epilogue::gelu_tanh : Epilogue::gelu;
      context.launch(
          grouped_gemm(in, p.w1, p.b1, saved.hidden.rows(p.first, p.count), pre, attr, p.rows));
    }
  }
  if (swiglu_form) saved.kept = context.launch_keeping(swiglu(saved.pre, saved.hidden));
  Tensor y = context.activation({n, hidden_}, "expert output");
  for (const Part& p : all)
    context.launch(grouped_gemm(saved.hidden.rows(p.first, p.count), p.w2, p.b2,
                                y.rows(p.first, p.count), {}, {}, p.rows));
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
  const std::vector<Part> all = parts(rows, saved);
  Tensor d_hidden = context.activation({n, width_}, "expert hidden gradient");
  for (const Part& p : all) {
    const Tensor d_out = dy.rows(p.first, p.count);
    context.launch(
        grouped_gemm(d_out, p.w2, {}, d_hidden.rows(p.first, p.count), {}, transposed, p.rows));
    context.launch_parameter_gradient(
        grouped_gemm_weight_grad(hidden.rows(p.first, p.count), d_out, p.dw2, p.rows));
    if (p.db2.defined()) context.launch_parameter_gradient(grouped_bias_grad(d_out, p.db2, p.rows));
  }
  Tensor d_pre = d_hidden;
  if (activation_ == "swiglu") {
    d_pre = context.activation({n, up_width_}, "expert gradient before activation");
    context.launch(swiglu_backward(saved.pre, d_hidden, d_pre));
  } else {
    GeluAttr attr;
    attr.tanh_form = activation_ == "gelu_tanh";
    context.launch(gelu_backward(saved.pre, d_hidden, d_pre, attr));
  }
  Tensor dx = context.activation({n, hidden_}, "expert input gradient");
  for (const Part& p : all) {
    const Tensor d_in = d_pre.rows(p.first, p.count);
    context.launch_parameter_gradient(
        grouped_gemm_weight_grad(saved.x.rows(p.first, p.count), d_in, p.dw1, p.rows));
    if (p.db1.defined()) context.launch_parameter_gradient(grouped_bias_grad(d_in, p.db1, p.rows));
    context.launch(grouped_gemm(d_in, p.w1, {}, dx.rows(p.first, p.count), {}, transposed, p.rows));
  }
  return dx;
}

}  // namespace moetwin
