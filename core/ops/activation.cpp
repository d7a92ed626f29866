#include "core/ops/activation.h"

#include "core/ops/row.h"

namespace moetwin {
namespace {

constexpr Operand kForward[] = {{"x", Access::read}, {"y", Access::write}};
constexpr Operand kBackward[] = {{"x", Access::read}, {"dy", Access::read}, {"dx", Access::write}};
// Counted from the rational approximations of the reference arithmetic.
constexpr int kFlopGelu = 30, kFlopGeluBackward = 45, kFlopSilu = 25, kFlopSiluBackward = 30;

/// Share of the rows that is touched: a host row count, where one is given, cuts the work.
double used(const OpCall& c) {
  const double rows = static_cast<double>(c[0].shape[0]);
  return c.sizes && rows > 0 ? static_cast<double>((*c.sizes)[0]) / rows : 1.0;
}
void check_rows(const OpCall& c, const Check& check) {
  if (c.sizes) check.host_rows(1, c[0].shape[0]);
}
void check_gelu(const OpCall& c) {
  const Check check(c);
  check.real(0);
  for (int i = 1; i < c.count; ++i) check.same_shape(i, 0), check.dtype(i, c[0].dtype);
  check_rows(c, check);
}
void check_swiglu_pair(const OpCall& c, int wide, int narrow) {
  const Check check(c);
  check.real(0);
  check.rank(wide, 2);
  check.that(c[wide].shape[1] % 2 == 0, "x holds gate and up, of equal width");
  check.shape(narrow, {c[wide].shape[0], c[wide].shape[1] / 2});
  for (int i = 1; i < c.count; ++i) check.dtype(i, c[0].dtype);
  check_rows(c, check);
}
void check_swiglu(const OpCall& c) { check_swiglu_pair(c, 0, 1); }
void check_swiglu_backward(const OpCall& c) {
  check_swiglu_pair(c, 0, 1);
  const Check check(c);
  check.same_shape(2, 0);
}

template <int flop>
void kernels_gelu(const OpCall& c, const KernelChoice&, KernelList& out) {
  const double share = used(c);
  out.push_back(simple_kernel(KernelKind::elementwise, c[0].dtype, share * flop * elements_of(c[0]),
                              share * traffic(c)));
}
void kernels_swiglu(const OpCall& c, const KernelChoice& choice, KernelList& out) {
  const double share = used(c), n = share * elements_of(c[1]), y = share * bytes_of(c[1]);
  const DType d = c[0].dtype;
  if (choice == KernelClass::moetwin || choice == KernelClass::megatron_core) {
    out.push_back(simple_kernel(KernelKind::elementwise, d, kFlopSilu * n, 3 * y));
    return;
  }
  out.push_back(simple_kernel(KernelKind::elementwise, d, kFlopSilu * n, 2 * y));  // silu(gate)
  out.push_back(simple_kernel(KernelKind::elementwise, d, n, 3 * y));              // times up
}
/// silu(gate), which the product with up needs again.
int64_t saved_swiglu(const OpCall& c, const KernelChoice& choice) {
  const bool fused = choice == KernelClass::moetwin || choice == KernelClass::megatron_core;
  return fused ? 0 : static_cast<int64_t>(used(c) * static_cast<double>(c[1].bytes()));
}
void kernels_swiglu_backward(const OpCall& c, const KernelChoice& choice, KernelList& out) {
  const double share = used(c), n = share * elements_of(c[1]), y = share * bytes_of(c[1]);
  const DType d = c[0].dtype;
  if (choice == KernelClass::moetwin || choice == KernelClass::megatron_core) {
    out.push_back(simple_kernel(KernelKind::elementwise, d, kFlopSiluBackward * n, 5 * y));
    return;
  }
  out.push_back(simple_kernel(KernelKind::elementwise, d, n, 3 * y));  // d_up
  out.push_back(simple_kernel(KernelKind::elementwise, d, n, 3 * y));  // d_silu
  out.push_back(simple_kernel(KernelKind::elementwise, d, kFlopSiluBackward * n, 3 * y));
}

}  // namespace

constinit const Op op_gelu = {"gelu",     index_of(OpIndex::gelu), kForward,
                              check_gelu, kernels_gelu<kFlopGelu>, no_workspace};
constinit const Op op_gelu_backward = {
    "gelu_backward", index_of(OpIndex::gelu_backward), kBackward,
    check_gelu,      kernels_gelu<kFlopGeluBackward>,  no_workspace};
constinit const Op op_swiglu = {
    "swiglu",    index_of(OpIndex::swiglu), kForward, check_swiglu, kernels_swiglu, no_workspace,
    saved_swiglu};
constinit const Op op_swiglu_backward = {"swiglu_backward",
                                         index_of(OpIndex::swiglu_backward),
                                         kBackward,
                                         check_swiglu_backward,
                                         kernels_swiglu_backward,
                                         no_workspace};

OpCall gelu(const Tensor& x, const Tensor& y, GeluAttr attr) {
  return make_call(op_gelu, {x, y}, attr);
}
OpCall gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, GeluAttr attr) {
  return make_call(op_gelu_backward, {x, dy, dx}, attr);
}
OpCall swiglu(const Tensor& x, const Tensor& y) { return make_call(op_swiglu, {x, y}, NoAttr{}); }
OpCall swiglu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx) {
  return make_call(op_swiglu_backward, {x, dy, dx}, NoAttr{});
}

}  // namespace moetwin
