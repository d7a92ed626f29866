#include "core/ops/router.h"
#include "core/ops/row.h"

namespace moetwin {
namespace {

constexpr Operand kOperands[] = {{"logits", Access::read}, {"bias", Access::read, true},
                                 {"probs", Access::write}, {"weights", Access::write},
                                 {"ids", Access::write},   {"counts", Access::write}};

void check(const OpCall& c) {
  const Check check(c);
  const auto a = c.get<SelectAttr>();
  check.rank(0, 2);
  check.real(0);
  check.that(c[0].dtype == real_dtype(c[0].dtype), "a router works in fp32 or fp64");
  const int64_t tokens = check.extent(0, 0), experts = check.extent(0, 1);
  check.shape(1, {experts});
  check.same_shape(2, 0);
  check.shape(3, {tokens, a.top_k});
  for (int i : {1, 2, 3}) check.dtype(i, c[0].dtype);
  check.shape(4, {tokens, a.top_k});
  check.dtype(4, DType::i32);
  check.shape(5, {experts + 1});
  check.dtype(5, DType::i64);
  check.that(a.top_k >= 1 && a.top_k <= experts, "1 <= top_k <= experts");
  check.that(a.groups >= 1 && experts % a.groups == 0, "experts are a multiple of groups");
  check.that(a.kept_groups >= 1 && a.kept_groups <= a.groups, "1 <= kept_groups <= groups");
  check.that(a.top_k <= a.kept_groups * (experts / a.groups),
             "the kept groups hold at least top_k experts");
}
void kernels(const OpCall& c, const KernelChoice& choice, KernelList& out) {
  const auto a = c.get<SelectAttr>();
  const double n = elements_of(c[0]), scores = bytes_of(c[0]), chosen = bytes_of(c[3]);
  const double ids = bytes_of(c[4]), draws = a.noise == Noise::none ? 0 : 50;
  const DType d = c[0].dtype;
  if (choice == KernelClass::moetwin) {
    out.push_back(simple_kernel(KernelKind::reduction, d,
                                (6 + draws + 2 * static_cast<double>(a.top_k)) * n, traffic(c)));
    return;
  }
  if (draws > 0) out.push_back(simple_kernel(KernelKind::elementwise, d, draws * n, 2 * scores));
  out.push_back(simple_kernel(KernelKind::reduction, d, 6 * n, 2 * scores));  // scores
  if (c[1].defined()) out.push_back(simple_kernel(KernelKind::elementwise, d, n, 2 * scores));
  // torch.topk: a selection, then a sort of what it selected; ids are 64-bit there.
  out.push_back(simple_kernel(KernelKind::sort, d, 2 * n, scores + chosen + 2 * ids));
  out.push_back(simple_kernel(KernelKind::sort, d, 0, 2 * (chosen + 2 * ids)));
  if (a.p_norm > 0) {
    out.push_back(simple_kernel(KernelKind::reduction, d, elements_of(c[3]), 2 * chosen));
    out.push_back(simple_kernel(KernelKind::elementwise, d, elements_of(c[3]), 2 * chosen));
  }
  out.push_back(simple_kernel(KernelKind::sort, DType::i32, 0, 2 * ids + bytes_of(c[5])));
}

}  // namespace

constinit const Op op_router_select = {
    "router_select", index_of(OpIndex::router_select), kOperands, check, kernels, no_workspace};

OpCall router_select(const Tensor& logits, const Tensor& bias, const Tensor& probs,
                     const Tensor& weights, const Tensor& ids, const Tensor& counts,
                     SelectAttr attr) {
  return make_call(op_router_select, {logits, bias, probs, weights, ids, counts}, attr);
}

}  // namespace moetwin
