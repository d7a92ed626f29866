// Rows between token order and expert order, and between ranks' order and experts' order.

#include "core/ops/dispatch.h"
#include "core/ops/row.h"

namespace moetwin {
namespace {

constexpr Operand kPermute[] = {
    {"x", Access::read}, {"source", Access::read}, {"y", Access::write}};
constexpr Operand kBackward[] = {
    {"dy", Access::read}, {"position", Access::read}, {"dx", Access::write}};
constexpr Operand kRegroup[] = {{"x", Access::read}, {"y", Access::write}};

void check_permute(const OpCall& c) {
  const Check check(c);
  const auto a = c.get<RangeAttr>();
  check.rank(0, 2);
  const int64_t tokens = check.extent(0, 0), h = check.extent(0, 1);
  check.real(0);
  check.shape(1, {tokens * a.top_k});
  check.dtype(1, DType::i32);
  check.shape(2, {a.count, h});
  check.dtype(2, c[0].dtype);
  check.that(a.first >= 0 && a.count >= 0 && a.first + a.count <= tokens * a.top_k,
             "the rows lie in the permuted order");
}
void check_backward(const OpCall& c) {
  const Check check(c);
  const auto a = c.get<RangeAttr>();
  check.rank(2, 2);
  const int64_t tokens = check.extent(2, 0), h = check.extent(2, 1);
  check.real(0);
  check.rank(0, 2);
  check.shape(0, {check.extent(0, 0), h});
  check.shape(1, {tokens * a.top_k});
  check.dtype(1, DType::i32);
  check.dtype(2, c[0].dtype);
  check.that(a.first >= 0 && a.count >= 0 && a.first + a.count <= tokens,
             "the tokens lie in the micro-batch");
}
double row_bytes(const Tensor& t) {
  return static_cast<double>(t.shape[1]) * static_cast<double>(dtype_size(t.dtype));
}
void kernels_permute(const OpCall& c, const KernelChoice&, KernelList& out) {
  const double rows = static_cast<double>(c.get<RangeAttr>().count);
  out.push_back(simple_kernel(KernelKind::gather, c[0].dtype, 0, rows * (2 * row_bytes(c[0]) + 4)));
}
void kernels_backward(const OpCall& c, const KernelChoice& choice, KernelList& out) {
  const auto a = c.get<RangeAttr>();
  const double tokens = static_cast<double>(a.count), k = static_cast<double>(a.top_k);
  const double row = row_bytes(c[2]), flop = tokens * k * static_cast<double>(c[2].shape[1]);
  const bool scatter = choice != KernelClass::moetwin;
  // Frameworks zero the result and add rows into it with atomics.
  if (scatter) out.push_back(simple_kernel(KernelKind::elementwise, c[0].dtype, 0, tokens * row));
  out.push_back(simple_kernel(KernelKind::gather, c[0].dtype, flop,
                              tokens * (k * (row + 4) + (scatter ? 2 * k : 1) * row)));
}

void check_regroup(const OpCall& c) {
  const Check check(c);
  check.rank(0, 2);
  check.rank(1, 2);
  check.shape(1, {check.extent(1, 0), check.extent(0, 1)});
  check.dtype(1, c[0].dtype);
  check.that(c.sizes && c.sizes->size() % 3 == 0, "segments are triples");
  const std::vector<int64_t>& s = *c.sizes;
  for (size_t i = 0; i < s.size(); i += 3)
    check.that(s[i] >= 0 && s[i + 1] >= 0 && s[i + 2] >= 0 && s[i] + s[i + 2] <= c[0].shape[0] &&
                   s[i + 1] + s[i + 2] <= c[1].shape[0],
               "every segment lies in x and in y");
}
void kernels_regroup(const OpCall& c, const KernelChoice&, KernelList& out) {
  int64_t rows = 0;
  for (size_t i = 2; i < c.sizes->size(); i += 3) rows += (*c.sizes)[i];
  out.push_back(simple_kernel(KernelKind::gather, c[0].dtype, 0,
                              2 * static_cast<double>(rows) * row_bytes(c[0])));
}

}  // namespace

constinit const Op op_permute = {
    "permute", index_of(OpIndex::permute), kPermute, check_permute, kernels_permute, no_workspace};
constinit const Op op_permute_backward = {"permute_backward", index_of(OpIndex::permute_backward),
                                          kBackward,          check_backward,
                                          kernels_backward,   no_workspace};
constinit const Op op_regroup = {
    "regroup", index_of(OpIndex::regroup), kRegroup, check_regroup, kernels_regroup, no_workspace};

OpCall permute(const Tensor& x, const Tensor& source, const Tensor& y, RangeAttr attr) {
  return make_call(op_permute, {x, source, y}, attr);
}
OpCall permute_backward(const Tensor& dy, const Tensor& position, const Tensor& dx,
                        RangeAttr attr) {
  return make_call(op_permute_backward, {dy, position, dx}, attr);
}
OpCall regroup(const Tensor& x, const Tensor& y, HostSizes segments) {
  return make_call(op_regroup, {x, y}, NoAttr{}, std::move(segments));
}

}  // namespace moetwin
