#include "core/ops/attention.h"
#include "core/ops/row.h"

namespace moetwin {
namespace {

constexpr Operand kForward[] = {
    {"q", Access::read}, {"kv", Access::read}, {"k_rope", Access::read}, {"qkv", Access::write}};
constexpr Operand kBackward[] = {{"d_qkv", Access::read},
                                 {"d_q", Access::write},
                                 {"d_kv", Access::write},
                                 {"d_k_rope", Access::write}};

void check_common(const OpCall& c, int q, int qkv) {
  const Check check(c);
  const auto a = c.get<LatentAttr>();
  check.that(a.heads >= 1 && a.nope_dim >= 0 && a.rope_dim >= 2 && a.value_dim >= 1,
             "heads and their parts are positive");
  check.that(a.rope_dim % 2 == 0, "rotary needs an even size");
  check.that(a.valid(), "base, scaling factor and magnitude are positive, the ramp rises");
  const int64_t tokens = check.extent(qkv, 0), dim = a.nope_dim + a.rope_dim;
  check.real(qkv);
  check.shape(qkv, {tokens, a.heads * (2 * dim + a.value_dim)});
  check.shape(q, {tokens, a.heads * dim});
  check.shape(q + 1, {tokens, a.heads * (a.nope_dim + a.value_dim)});
  check.shape(q + 2, {tokens, a.rope_dim});
  for (int i = q; i < q + 3; ++i) check.dtype(i, c[qkv].dtype);
  check.that(a.sequence_length >= 1 && tokens % a.sequence_length == 0,
             "tokens are whole sequences");
}
void check_forward(const OpCall& c) { check_common(c, 0, 3); }
void check_backward(const OpCall& c) { check_common(c, 1, 0); }

/// moetwin: one pass. Elsewhere queries and the key are rotated first and then put together with
/// what has no positions, as DeepSeek's and Megatron-Core's code does.
template <int q, int qkv>
void kernels(const OpCall& c, const KernelChoice& choice, KernelList& out) {
  const DType d = c[qkv].dtype;
  const double n = 3 * elements_of(c[qkv]);
  if (choice == KernelClass::moetwin) {
    out.push_back(simple_kernel(KernelKind::elementwise, d, n, traffic(c)));
    return;
  }
  const auto a = c.get<LatentAttr>();
  const double rotated = bytes_of(c[q]) * static_cast<double>(a.rope_dim) /
                         static_cast<double>(a.nope_dim + a.rope_dim);
  out.push_back(simple_kernel(KernelKind::elementwise, d, n / 2, 2 * rotated));
  out.push_back(simple_kernel(KernelKind::elementwise, d, n / 2, traffic(c)));
}

}  // namespace

constinit const Op op_latent_qkv = {"latent_qkv",  index_of(OpIndex::latent_qkv),
                                    kForward,      check_forward,
                                    kernels<0, 3>, no_workspace};
constinit const Op op_latent_qkv_backward = {"latent_qkv_backward",
                                             index_of(OpIndex::latent_qkv_backward),
                                             kBackward,
                                             check_backward,
                                             kernels<1, 0>,
                                             no_workspace};

OpCall latent_qkv(const Tensor& q, const Tensor& kv, const Tensor& k_rope, const Tensor& qkv,
                  LatentAttr attr) {
  return make_call(op_latent_qkv, {q, kv, k_rope, qkv}, attr);
}
OpCall latent_qkv_backward(const Tensor& d_qkv, const Tensor& d_q, const Tensor& d_kv,
                           const Tensor& d_k_rope, LatentAttr attr) {
  return make_call(op_latent_qkv_backward, {d_qkv, d_q, d_kv, d_k_rope}, attr);
}

}  // namespace moetwin
