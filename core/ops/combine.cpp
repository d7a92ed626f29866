#include "core/ops/dispatch.h"
#include "core/ops/row.h"

namespace moetwin {
namespace {

constexpr Operand kForward[] = {{"y", Access::read},
                                {"weights", Access::read},
                                {"position", Access::read},
                                {"out", Access::write}};
constexpr Operand kBackward[] = {{"d_out", Access::read},   {"y", Access::read},
                                 {"weights", Access::read}, {"position", Access::read},
                                 {"d_y", Access::write},    {"d_weights", Access::write}};

void check_common(const OpCall& c, const Check& check, int tokens_at, int y, int weights,
                  int position) {
  const auto a = c.get<RangeAttr>();
  check.rank(tokens_at, 2);
  check.rank(y, 2);
  const int64_t tokens = check.extent(tokens_at, 0), h = check.extent(tokens_at, 1);
  check.real(y);
  check.shape(y, {check.extent(y, 0), h});
  check.dtype(tokens_at, c[y].dtype);
  check.shape(weights, {tokens, a.top_k});
  check.real_of(weights, y);
  check.shape(position, {tokens * a.top_k});
  check.dtype(position, DType::i32);
  check.that(a.first >= 0 && a.count >= 0 && a.first + a.count <= tokens,
             "the tokens lie in the micro-batch");
}
void check_forward(const OpCall& c) {
  const Check check(c);
  check_common(c, check, 3, 0, 1, 2);
}
void check_backward(const OpCall& c) {
  const Check check(c);
  check_common(c, check, 0, 1, 2, 3);
  check.same_shape(4, 1);
  check.dtype(4, c[1].dtype);
  check.same_shape(5, 2);
  check.dtype(5, c[2].dtype);
}
struct Sizes {
  double tokens, k, row, elements;
};
Sizes sizes_of(const OpCall& c, const Tensor& rows) {
  const auto a = c.get<RangeAttr>();
  return {static_cast<double>(a.count), static_cast<double>(a.top_k),
          static_cast<double>(rows.shape[1] * dtype_size(rows.dtype)),
          static_cast<double>(a.count * a.top_k * rows.shape[1])};
}
void kernels_forward(const OpCall& c, const KernelChoice& choice, KernelList& out) {
  const Sizes s = sizes_of(c, c[3]);
  const DType d = c[0].dtype;
  const double rows = s.tokens * s.k * s.row;
  if (choice == KernelClass::moetwin || choice == KernelClass::megatron_core) {
    out.push_back(
        simple_kernel(KernelKind::gather, d, 2 * s.elements, rows + s.tokens * (s.row + 8 * s.k)));
    return;
  }
  // Weigh all rows, zero the result, add rows into it.
  out.push_back(simple_kernel(KernelKind::elementwise, d, s.elements, 2 * rows));
  out.push_back(simple_kernel(KernelKind::elementwise, d, 0, s.tokens * s.row));
  out.push_back(simple_kernel(KernelKind::gather, d, s.elements, 3 * rows));
}
void kernels_backward(const OpCall& c, const KernelChoice& choice, KernelList& out) {
  const Sizes s = sizes_of(c, c[0]);
  const DType d = c[0].dtype;
  const double rows = s.tokens * s.k * s.row;
  if (choice == KernelClass::moetwin || choice == KernelClass::megatron_core) {
    out.push_back(simple_kernel(KernelKind::gather, d, 3 * s.elements,
                                2 * rows + s.tokens * (s.row + 12 * s.k)));
    return;
  }
  out.push_back(simple_kernel(KernelKind::gather, d, 0, rows + s.tokens * s.row));   // gradient
  out.push_back(simple_kernel(KernelKind::elementwise, d, s.elements, 2 * rows));    // times weight
  out.push_back(simple_kernel(KernelKind::reduction, d, 2 * s.elements, 2 * rows));  // d_weights
}

}  // namespace

constinit const Op op_combine = {
    "combine", index_of(OpIndex::combine), kForward, check_forward, kernels_forward, no_workspace};
constinit const Op op_combine_backward = {"combine_backward", index_of(OpIndex::combine_backward),
                                          kBackward,          check_backward,
                                          kernels_backward,   no_workspace};

OpCall combine(const Tensor& y, const Tensor& weights, const Tensor& position, const Tensor& out,
               RangeAttr attr) {
  return make_call(op_combine, {y, weights, position, out}, attr);
}
OpCall combine_backward(const Tensor& d_out, const Tensor& y, const Tensor& weights,
                        const Tensor& position, const Tensor& d_y, const Tensor& d_weights,
                        RangeAttr attr) {
  return make_call(op_combine_backward, {d_out, y, weights, position, d_y, d_weights}, attr);
}

}  // namespace moetwin
