#include "core/ops/heads.h"
#include "core/ops/norm.h"

namespace moetwin {
namespace {

constexpr Operand kForward[] = {{"qkv", Access::read},
                                {"gamma_q", Access::read},
                                {"gamma_k", Access::read},
                                {"out", Access::write},
                                {"rstd", Access::write}};
constexpr Operand kBackward[] = {{"qkv", Access::read},
                                 {"gamma_q", Access::read},
                                 {"gamma_k", Access::read},
                                 {"rstd", Access::read},
                                 {"d_out", Access::read},
                                 {"d_qkv", Access::write},
                                 {"d_gamma_q", Access::read_write},
                                 {"d_gamma_k", Access::read_write}};

HeadSizes sizes_of(const OpCall& c) { return moetwin::sizes_of(c.get<HeadsAttr>()); }
void check_common(const OpCall& c, const Check& check, int rstd) {
  const HeadSizes h = sizes_of(c);
  const int64_t tokens = check_heads(check, 0, h);
  check.that(h.value == h.dim, "values are as wide as keys");
  for (int i : {1, 2}) check.shape(i, {h.dim}), check.same_or_real(i, 0);
  check.shape(rstd, {tokens, h.query + h.key});
  check.real_of(rstd, 0);
}
void check_forward(const OpCall& c) {
  const Check check(c);
  check_common(c, check, 4);
  check.same_shape(3, 0);
  check.dtype(3, c[0].dtype);
}
void check_backward(const OpCall& c) {
  const Check check(c);
  check_common(c, check, 3);
  for (int i : {4, 5}) check.same_shape(i, 0), check.dtype(i, c[0].dtype);
  for (int i : {6, 7}) check.same_shape(i, 1), check.same_or_real(i, 0);
}
/// moetwin: one pass; elsewhere a norm of the queries and one of the keys, values untouched.
template <int flop, int operands>
void kernels(const OpCall& c, const KernelChoice& choice, KernelList& out) {
  const HeadSizes h = sizes_of(c);
  const DType d = c[0].dtype;
  const double n = elements_of(c[0]);
  if (choice == KernelClass::moetwin) {
    out.push_back(simple_kernel(KernelKind::reduction, d, flop * n, traffic(c)));
    return;
  }
  for (int64_t heads : {h.query, h.key}) {
    const double share = static_cast<double>(heads * h.dim) / static_cast<double>(h.width());
    out.push_back(simple_kernel(KernelKind::reduction, d, flop * n * share,
                                operands * bytes_of(c[0]) * share));
  }
}

}  // namespace

constinit const Op op_qk_norm = {
    "qk_norm", index_of(OpIndex::qk_norm), kForward, check_forward, kernels<5, 2>, no_workspace};
constinit const Op op_qk_norm_backward = {"qk_norm_backward", index_of(OpIndex::qk_norm_backward),
                                          kBackward,          check_backward,
                                          kernels<12, 3>,     no_workspace};

OpCall qk_norm(const Tensor& qkv, const Tensor& gamma_q, const Tensor& gamma_k, const Tensor& out,
               const Tensor& rstd, HeadsAttr attr) {
  return make_call(op_qk_norm, {qkv, gamma_q, gamma_k, out, rstd}, attr);
}
OpCall qk_norm_backward(const Tensor& qkv, const Tensor& gamma_q, const Tensor& gamma_k,
                        const Tensor& rstd, const Tensor& d_out, const Tensor& d_qkv,
                        const Tensor& d_gamma_q, const Tensor& d_gamma_k, HeadsAttr attr) {
  return make_call(op_qk_norm_backward,
                   {qkv, gamma_q, gamma_k, rstd, d_out, d_qkv, d_gamma_q, d_gamma_k}, attr);
}

}  // namespace moetwin
