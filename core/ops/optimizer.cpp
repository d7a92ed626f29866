#include "core/ops/optimizer.h"

#include "core/ops/row.h"

namespace moetwin {
namespace {

constexpr Operand kAdamW[] = {{"parameter", Access::read_write},
                              {"gradient", Access::read},
                              {"m", Access::read_write},
                              {"v", Access::read_write},
                              {"scale", Access::read}};
constexpr Operand kSgd[] = {
    {"parameter", Access::read_write}, {"gradient", Access::read}, {"scale", Access::read}};
constexpr Operand kSquares[] = {{"x", Access::read}, {"sum", Access::read_write}};
constexpr Operand kClip[] = {{"totals", Access::read}, {"out", Access::write}};

/// Flat ranges of equal length; dtypes may differ (f32 master weights, 16-bit gradients).
void check_flat(const OpCall& c) {
  const Check check(c);
  for (int i = 0; i + 1 < c.count; ++i) {
    check.real(i);
    check.that(c[i].elements() == c[0].elements(), "all ranges have the parameter's length");
  }
  check.shape(c.count - 1, {1});
  check.real_of(c.count - 1, 0);
}
void kernels_adamw(const OpCall& c, const KernelChoice& choice, KernelList& out) {
  const double n = elements_of(c[0]), p = bytes_of(c[0]), g = bytes_of(c[1]), s = bytes_of(c[2]);
  const auto pass = [&](double flop, double bytes) {
    out.push_back(simple_kernel(KernelKind::optimizer, c[0].dtype, flop * n, bytes));
  };
  if (choice == KernelClass::moetwin) {
    pass(16, traffic(c));
    return;
  }
  // Unscaling with the look for infinities, and clipping, each go over the gradients.
  if (choice == KernelClass::megatron_2021) pass(1, 2 * g);
  pass(1, 2 * g);
  if (choice != KernelClass::torch_fsdp) {
    pass(16, traffic(c));
    return;
  }
  // PyTorch's default multi-tensor ("foreach") step, one pass per line.
  pass(1, 2 * p);          // weight decay
  pass(2, 2 * s + g);      // m
  pass(1, 2 * s);          // v *= beta2
  pass(2, 2 * s + g);      // v += (1 - beta2) g g
  pass(1, 2 * s);          // square root into a new list
  pass(2, 4 * s);          // divide by the bias correction, add epsilon
  pass(2, 2 * p + 2 * s);  // update
}
void kernels_sgd(const OpCall& c, const KernelChoice&, KernelList& out) {
  out.push_back(
      simple_kernel(KernelKind::optimizer, c[0].dtype, 4 * elements_of(c[0]), traffic(c)));
}
void check_squares(const OpCall& c) {
  const Check check(c);
  check.real(0);
  check.shape(1, {1});
  check.real_of(1, 0);
}
void kernels_squares(const OpCall& c, const KernelChoice&, KernelList& out) {
  out.push_back(
      simple_kernel(KernelKind::reduction, c[0].dtype, 2 * elements_of(c[0]), traffic(c)));
}
void check_clip(const OpCall& c) {
  const Check check(c);
  check.real(0);
  for (int i : {0, 1}) check.shape(i, {2}), check.dtype(i, c[0].dtype);
}
void kernels_clip(const OpCall& c, const KernelChoice&, KernelList& out) {
  out.push_back(simple_kernel(KernelKind::elementwise, c[0].dtype, 6, traffic(c)));
}

}  // namespace

constinit const Op op_adamw = {
    "adamw", index_of(OpIndex::adamw), kAdamW, check_flat, kernels_adamw, no_workspace};
constinit const Op op_sgd = {"sgd",       index_of(OpIndex::sgd), kSgd, check_flat, kernels_sgd,
                             no_workspace};
constinit const Op op_sum_squares = {"sum_squares",   index_of(OpIndex::sum_squares),
                                     kSquares,        check_squares,
                                     kernels_squares, no_workspace};
constinit const Op op_clip_factor = {
    "clip_factor", index_of(OpIndex::clip_factor), kClip, check_clip, kernels_clip, no_workspace};

OpCall adamw(const Tensor& parameter, const Tensor& gradient, const Tensor& m, const Tensor& v,
             const Tensor& scale, AdamWAttr attr) {
  return make_call(op_adamw, {parameter, gradient, m, v, scale}, attr);
}
OpCall sgd(const Tensor& parameter, const Tensor& gradient, const Tensor& scale, SgdAttr attr) {
  return make_call(op_sgd, {parameter, gradient, scale}, attr);
}
OpCall sum_squares(const Tensor& x, const Tensor& sum) {
  return make_call(op_sum_squares, {x, sum}, NoAttr{});
}
OpCall clip_factor(const Tensor& totals, const Tensor& out, ClipAttr attr) {
  return make_call(op_clip_factor, {totals, out}, attr);
}

}  // namespace moetwin
