#include "core/ops/attention.h"
#include "core/ops/heads.h"

namespace moetwin {
namespace {

constexpr Operand kOperands[] = {{"qkv", Access::read_write}};

void check(const OpCall& c) {
  const Check check(c);
  const auto a = c.get<RotaryAttr>();
  check_heads(check, 0, {a.query_heads, a.kv_heads, a.head_dim, a.head_dim, a.sequence_length});
  check.that(a.head_dim % 2 == 0, "rotary needs an even head size");
  check.that(a.valid(), "base, scaling factor and magnitude are positive, the ramp rises");
}
void kernels(const OpCall& c, const KernelChoice& choice, KernelList& out) {
  const auto a = c.get<RotaryAttr>();
  const double share = static_cast<double>(a.query_heads + a.kv_heads) /
                       static_cast<double>(a.query_heads + 2 * a.kv_heads);
  const double n = share * elements_of(c[0]), x = share * bytes_of(c[0]);
  if (choice == KernelClass::moetwin || choice == KernelClass::megatron_core) {
    out.push_back(simple_kernel(KernelKind::elementwise, c[0].dtype, 3 * n, 2 * x));
    return;
  }
  // Written out: widen, multiply by the complex table, narrow.
  const double wide = 4 * n;
  out.push_back(simple_kernel(KernelKind::elementwise, c[0].dtype, 0, x + wide));
  out.push_back(simple_kernel(KernelKind::elementwise, DType::f32, 3 * n, 2 * wide));
  out.push_back(simple_kernel(KernelKind::elementwise, c[0].dtype, 0, wide + x));
}

}  // namespace

constinit const Op op_rotary = {"rotary",    index_of(OpIndex::rotary), kOperands, check, kernels,
                                no_workspace};

OpCall rotary(const Tensor& qkv, RotaryAttr attr) { return make_call(op_rotary, {qkv}, attr); }

}  // namespace moetwin
