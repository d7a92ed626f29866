#include "core/nn/linear.h"

#include "core/base/error.h"

namespace moetwin {

namespace {

/// Columns [rank w / n, (rank + 1) w / n) of each part of width w, side by side.
std::vector<ColumnRange> columns_of(const std::vector<int64_t>& parts, const TensorParallel& tp) {
  std::vector<ColumnRange> ranges;
  int64_t global = 0, local = 0;
  for (const int64_t width : parts) {
    require(width % tp.size() == 0, "TP divides every part of a split layer");
    const int64_t mine = width / tp.size();
    ranges.push_back({global + tp.rank() * mine, local, mine});
    global += width;
    local += mine;
  }
  return ranges;
}

}  // namespace

Linear::Linear(ParameterSet& parameters, const LinearConfig& config, const TensorParallel& tp)
    : in_(config.split == LinearSplit::rows ? config.in / tp.size() : config.in),
      out_(config.split == LinearSplit::columns ? config.out / tp.size() : config.out),
      adds_bias_(config.split != LinearSplit::rows || tp.rank() == 0) {
  const bool columns = config.split == LinearSplit::columns,
             rows = config.split == LinearSplit::rows;
  const std::vector<ColumnRange> ranges =
      columns && tp.size() > 1
          ? columns_of(config.parts.empty() ? std::vector{config.out} : config.parts, tp)
          : std::vector<ColumnRange>{};
  require(!rows || config.in % tp.size() == 0, "TP divides the inputs of a row-parallel layer");
  Parameter weight;
  weight.name = config.name + ".weight";
  weight.block = config.block;
  const bool copied = config.split == LinearSplit::copied;
  weight.tensor = columns || rows ? tp.split() : copied ? tp.on_parts() : AxisUse::same;
  weight.shape = {in_, out_};
  weight.global = {1, config.in, config.out};
  weight.offset = {0, rows ? tp.rank() * in_ : 0, 0};
  weight.local = {1, in_, out_};
  weight.columns = ranges;
  weight.init_std = config.init_std;
  weight_ = &parameters.add(std::move(weight));
  if (!config.bias) return;
  Parameter bias;
  bias.name = config.name + ".bias";
  bias.block = config.block;
  // That of a row-parallel layer sees the gradient of the whole sum on every rank.
  bias.tensor = columns ? tp.split() : copied ? tp.on_parts() : AxisUse::same;
  bias.one_dimensional = true;
  bias.shape = {out_};
  bias.global = {1, 1, config.out};
  bias.local = {1, 1, out_};
  bias.columns = ranges;
  bias_ = &parameters.add(std::move(bias));
}

Tensor Linear::forward(Context& context, const Tensor& x, Epilogue epilogue, Tensor pre) const {
  Tensor y = context.activation({x.shape[0], out_}, "linear output");
  GemmAttr attr;
  attr.epilogue = epilogue;
  context.launch(
      gemm(x, weight_->value, bias_ && adds_bias_ ? bias_->value : Tensor{}, y, pre, attr));
  return y;
}

void Linear::forward_columns(Context& context, const Tensor& x, const Tensor& y) const {
  const int64_t columns = y.shape[1];
  const Tensor weight = weight_->value.reshaped({in_ * out_}).slice(0, {in_ * columns});
  context.launch(gemm(x, weight.reshaped({in_, columns}), {}, y, {}, {}));
}

Tensor Linear::backward(Context& context, const Tensor& x, const Tensor& dy) const {
  Tensor dx = context.activation({x.shape[0], in_}, "linear input gradient");
  GemmAttr input;
  input.transpose_b = true;
  context.launch(gemm(dy, weight_->value, {}, dx, {}, input));
  GemmAttr weight;
  weight.transpose_a = true;
  weight.accumulate = true;
  context.launch_parameter_gradient(gemm(x, dy, {}, weight_->gradient, {}, weight));
  if (bias_) context.launch_parameter_gradient(bias_grad(dy, bias_->gradient));
  return dx;
}

}  // namespace moetwin
