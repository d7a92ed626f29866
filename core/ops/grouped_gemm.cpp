#include <algorithm>

#include "core/ops/gemm.h"
#include "core/ops/row.h"

namespace moetwin {
namespace {

constexpr Operand kForward[] = {{"a", Access::read},
                                {"b", Access::read},
                                {"bias", Access::read, true},
                                {"c", Access::write},
                                {"pre", Access::write, true}};
constexpr Operand kWeightGrad[] = {
    {"a", Access::read}, {"dc", Access::read}, {"d_b", Access::read_write}};
constexpr Operand kBiasGrad[] = {{"dc", Access::read}, {"d_bias", Access::read_write}};
constexpr double kFlopGelu = 30;

struct Groups {
  int64_t rows = 0, largest = 0, non_empty = 0, count = 0;
};
Groups groups_of(const OpCall& call) {
  Groups g;
  for (int64_t r : *call.sizes) {
    g.rows += r;
    g.largest = std::max(g.largest, r);
    g.non_empty += r > 0;
    ++g.count;
  }
  return g;
}
double row_bytes(const Tensor& t) {
  return t.defined() ? static_cast<double>(t.shape[1] * dtype_size(t.dtype)) : 0.0;
}
/// Bytes of one group's part of a [G, ...] tensor.
double group_bytes(const Tensor& t) {
  return t.defined() ? bytes_of(t) / static_cast<double>(t.shape[0]) : 0.0;
}

void check_forward(const OpCall& call) {
  const Check check(call);
  const bool transposed = call.get<GroupedGemmAttr>().transpose_b;
  check.rank(0, 2);
  check.rank(1, 3);
  const int64_t rows = check.extent(0, 0), k = check.extent(0, 1), g = check.extent(1, 0);
  const int64_t m = check.extent(1, transposed ? 1 : 2);
  if (transposed)
    check.shape(1, {g, m, k});
  else
    check.shape(1, {g, k, m});
  check.shape(2, {g, m});
  check.shape(3, {rows, m});
  check.shape(4, {rows, m});
  check.real(0);
  check.dtype(1, call[0].dtype);
  check.same_or_real(2, 0);
  check.same_or_real(3, 0);
  check.same_or_real(4, 0);
  check.host_rows(g, rows);
}

/// One grouped kernel; m is the largest group's rows.
KernelWork grouped(const OpCall& call, const Groups& g, int64_t n, int64_t k, double bytes) {
  KernelWork w = simple_kernel(
      KernelKind::grouped_gemm, call[0].dtype,
      2.0 * static_cast<double>(g.rows) * static_cast<double>(n) * static_cast<double>(k), bytes);
  w.m = g.largest;
  w.n = n;
  w.k = k;
  w.batch = g.count;
  w.group_rows = call.sizes.get();
  return w;
}

/// Transformer Engine's grouped linear casts its rows once as they lie and once transposed, like
/// the plain one; weights are cast once a step.
bool in_fp8(const OpCall& call, const KernelChoice& choice) {
  return choice.fp8_products && choice != KernelClass::megatron_2021 &&
         dtype_size(call[0].dtype) == 2;
}
void cast_rows(const Tensor& x, double rows, KernelList& out) {
  const double elements = rows * static_cast<double>(x.shape[1]);
  out.push_back(simple_kernel(KernelKind::elementwise, x.dtype, 2 * elements,
                              rows * row_bytes(x) + 2 * elements));
}

void kernels_forward(const OpCall& call, const KernelChoice& choice, KernelList& out) {
  const Groups g = groups_of(call);
  const DType d = call[0].dtype;
  const bool fp8 = in_fp8(call, choice);
  const int64_t k = call[0].shape[1], n = call[3].shape[1];
  const bool activation = call.get<GroupedGemmAttr>().epilogue != Epilogue::none;
  const double rows = static_cast<double>(g.rows), full = static_cast<double>(g.non_empty);
  const double a = row_bytes(call[0]), c = row_bytes(call[3]);
  const double weights = full * group_bytes(call[1]), bias = full * group_bytes(call[2]);
  if (choice == KernelClass::moetwin) {
    out.push_back(grouped(call, g, n, k, rows * (a + c + row_bytes(call[4])) + weights + bias));
    return;
  }
  if (choice == KernelClass::megatron_2021) {  // one expert after the other
    for (int64_t r : *call.sizes)
      if (r > 0)
        out.push_back(
            gemm_kernel(d, r, n, k, 1, static_cast<double>(r) * (a + c) + group_bytes(call[1])));
  } else {
    if (fp8) cast_rows(call[0], rows, out);
    const double narrow = fp8 ? 0.5 : 1;
    out.push_back(grouped(call, g, n, k, rows * (narrow * a + c) + narrow * weights));
    out.back().fp8 = fp8;
  }
  if (activation || call[2].defined())
    out.push_back(simple_kernel(KernelKind::elementwise, d,
                                (activation ? kFlopGelu : 1) * rows * static_cast<double>(n),
                                2 * rows * c + bias));
}

void check_weight_grad(const OpCall& call) {
  const Check check(call);
  check.rank(0, 2);
  check.rank(1, 2);
  check.rank(2, 3);
  check.shape(1, {check.extent(0, 0), check.extent(1, 1)});
  check.shape(2, {check.extent(2, 0), check.extent(0, 1), check.extent(1, 1)});
  check.real(0);
  check.dtype(1, call[0].dtype);
  check.same_or_real(2, 0);
  check.host_rows(check.extent(2, 0), check.extent(0, 0));
}
void kernels_weight_grad(const OpCall& call, const KernelChoice& choice, KernelList& out) {
  const Groups g = groups_of(call);
  const int64_t k = call[0].shape[1], n = call[1].shape[1];
  const double a = row_bytes(call[0]), dc = row_bytes(call[1]), weight = group_bytes(call[2]);
  if (choice == KernelClass::megatron_2021) {
    for (int64_t r : *call.sizes)
      if (r > 0)
        out.push_back(
            gemm_kernel(call[0].dtype, k, n, r, 1, static_cast<double>(r) * (a + dc) + 2 * weight));
    return;
  }
  // Both operands have been cast already.
  const bool fp8 = in_fp8(call, choice);
  out.push_back(grouped(call, g, n, k,
                        static_cast<double>(g.rows) * (fp8 ? 0.5 : 1) * (a + dc) +
                            2 * static_cast<double>(g.non_empty) * weight));
  out.back().fp8 = fp8;
}

void check_bias_grad(const OpCall& call) {
  const Check check(call);
  check.rank(0, 2);
  check.rank(1, 2);
  check.shape(1, {check.extent(1, 0), check.extent(0, 1)});
  check.real(0);
  check.same_or_real(1, 0);
  check.host_rows(check.extent(1, 0), check.extent(0, 0));
}
void kernels_bias_grad(const OpCall& call, const KernelChoice& choice, KernelList& out) {
  const Groups g = groups_of(call);
  const double row = row_bytes(call[0]), n = static_cast<double>(call[0].shape[1]);
  if (choice == KernelClass::megatron_2021) {
    for (int64_t r : *call.sizes)
      if (r > 0)
        out.push_back(simple_kernel(KernelKind::reduction, call[0].dtype,
                                    static_cast<double>(r) * n,
                                    static_cast<double>(r) * row + 2 * group_bytes(call[1])));
    return;
  }
  out.push_back(simple_kernel(KernelKind::reduction, call[0].dtype, static_cast<double>(g.rows) * n,
                              static_cast<double>(g.rows) * row +
                                  2 * static_cast<double>(g.non_empty) * group_bytes(call[1])));
}

}  // namespace

constinit const Op op_grouped_gemm = {"grouped_gemm",  index_of(OpIndex::grouped_gemm),
                                      kForward,        check_forward,
                                      kernels_forward, no_workspace};
constinit const Op op_grouped_gemm_weight_grad = {"grouped_gemm_weight_grad",
                                                  index_of(OpIndex::grouped_gemm_weight_grad),
                                                  kWeightGrad,
                                                  check_weight_grad,
                                                  kernels_weight_grad,
                                                  no_workspace};
constinit const Op op_grouped_bias_grad = {
    "grouped_bias_grad", index_of(OpIndex::grouped_bias_grad),
    kBiasGrad,           check_bias_grad,
    kernels_bias_grad,   no_workspace};

OpCall grouped_gemm(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& c,
                    const Tensor& pre, GroupedGemmAttr attr, HostSizes rows) {
  return make_call(op_grouped_gemm, {a, b, bias, c, pre}, attr, std::move(rows));
}
OpCall grouped_gemm_weight_grad(const Tensor& a, const Tensor& dc, const Tensor& d_b,
                                HostSizes rows) {
  return make_call(op_grouped_gemm_weight_grad, {a, dc, d_b}, NoAttr{}, std::move(rows));
}
OpCall grouped_bias_grad(const Tensor& dc, const Tensor& d_bias, HostSizes rows) {
  return make_call(op_grouped_bias_grad, {dc, d_bias}, NoAttr{}, std::move(rows));
}

}  // namespace moetwin
