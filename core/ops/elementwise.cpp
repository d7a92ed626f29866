#include "core/ops/elementwise.h"

#include "core/ops/row.h"

namespace moetwin {
namespace {

/// One pass over memory with `flop_per_element` for each element of the last operand.
template <int flop_per_element, KernelKind kind>
void one_pass(const OpCall& c, const KernelChoice&, KernelList& out) {
  const Tensor& y = c[c.count - 1];
  out.push_back(simple_kernel(kind, y.dtype, flop_per_element * elements_of(y), traffic(c)));
}

constexpr Operand kAdd[] = {{"a", Access::read}, {"b", Access::read}, {"y", Access::write}};
constexpr Operand kUnary[] = {{"x", Access::read}, {"y", Access::write}};
constexpr Operand kUpdate[] = {{"x", Access::read}, {"y", Access::read_write}};
constexpr Operand kFill[] = {{"y", Access::write}};

void check_add(const OpCall& c) {
  const Check check(c);
  check.real(0);
  for (int i : {1, 2}) check.same_shape(i, 0), check.dtype(i, c[0].dtype);
}
/// Equal shapes, any real dtypes: gradients of 16-bit layers are added into f32 ones.
void check_unary(const OpCall& c) {
  const Check check(c);
  check.real(0);
  check.real(1);
  check.same_shape(1, 0);
}
void check_copy(const OpCall& c) {
  const Check check(c);
  check.same_shape(1, 0);
  check.dtype(1, c[0].dtype);
}
void check_fill(const OpCall& c) { Check{c}; }
void check_sum_parts(const OpCall& c) {
  const Check check(c);
  const auto attr = c.get<PartsAttr>();
  check.real(0);
  check.real(1);
  check.that(attr.parts >= 1 && c[0].elements() == attr.parts * c[1].elements(),
             "x holds `parts` times the elements of y");
}
void kernels_sum_parts(const OpCall& c, const KernelChoice&, KernelList& out) {
  out.push_back(simple_kernel(KernelKind::reduction, c[0].dtype, elements_of(c[0]), traffic(c)));
}

}  // namespace

constinit const Op op_add = {
    "add",       index_of(OpIndex::add), kAdd, check_add, one_pass<1, KernelKind::elementwise>,
    no_workspace};
constinit const Op op_scaled_add = {
    "scaled_add", index_of(OpIndex::scaled_add),        kUpdate,
    check_unary,  one_pass<2, KernelKind::elementwise>, no_workspace};
constinit const Op op_scale = {"scale",
                               index_of(OpIndex::scale),
                               kUnary,
                               check_unary,
                               one_pass<1, KernelKind::elementwise>,
                               no_workspace};
constinit const Op op_cast = {
    "cast",      index_of(OpIndex::cast), kUnary, check_unary, one_pass<0, KernelKind::elementwise>,
    no_workspace};
constinit const Op op_copy = {"copy",     index_of(OpIndex::copy),       kUnary,
                              check_copy, one_pass<0, KernelKind::copy>, no_workspace};
constinit const Op op_fill = {
    "fill",      index_of(OpIndex::fill), kFill, check_fill, one_pass<0, KernelKind::elementwise>,
    no_workspace};
constinit const Op op_sum_parts = {
    "sum_parts", index_of(OpIndex::sum_parts), kUnary, check_sum_parts, kernels_sum_parts,
    no_workspace};

OpCall add(const Tensor& a, const Tensor& b, const Tensor& y) {
  return make_call(op_add, {a, b, y}, NoAttr{});
}
OpCall scaled_add(const Tensor& x, const Tensor& y, ScaleAttr attr) {
  return make_call(op_scaled_add, {x, y}, attr);
}
OpCall scale(const Tensor& x, const Tensor& y, ScaleAttr attr) {
  return make_call(op_scale, {x, y}, attr);
}
OpCall cast(const Tensor& x, const Tensor& y) { return make_call(op_cast, {x, y}, NoAttr{}); }
OpCall copy(const Tensor& x, const Tensor& y) { return make_call(op_copy, {x, y}, NoAttr{}); }
OpCall fill(const Tensor& y, FillAttr attr) { return make_call(op_fill, {y}, attr); }
OpCall sum_parts(const Tensor& x, const Tensor& y, PartsAttr attr) {
  return make_call(op_sum_parts, {x, y}, attr);
}

}  // namespace moetwin
