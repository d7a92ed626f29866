#include "core/ops/router.h"
#include "core/ops/row.h"

namespace moetwin {
namespace {

constexpr Operand kLosses[] = {{"logits", Access::read},
                               {"probs", Access::read},
                               {"ids", Access::read},
                               {"global_counts", Access::read, true},
                               {"losses", Access::read_write}};
constexpr Operand kBackward[] = {{"logits", Access::read},    {"probs", Access::read},
                                 {"ids", Access::read},       {"weights", Access::read},
                                 {"d_weights", Access::read}, {"global_counts", Access::read, true},
                                 {"d_logits", Access::write}};

void check_common(const OpCall& c, const Check& check, int global) {
  const auto a = c.get<RouterLossAttr>();
  check.rank(0, 2);
  check.real(0);
  check.that(c[0].dtype == real_dtype(c[0].dtype), "a router works in fp32 or fp64");
  const int64_t tokens = check.extent(0, 0), experts = check.extent(0, 1);
  check.same_shape(1, 0);
  check.dtype(1, c[0].dtype);
  check.shape(2, {tokens, a.top_k});
  check.dtype(2, DType::i32);
  check.shape(global, {experts});
  check.dtype(global, DType::i64);
  check.that(a.rows_per_scope == 0 || (a.rows_per_scope > 0 && tokens % a.rows_per_scope == 0),
             "tokens are whole scopes");
  check.that(!check.has(global) || a.global_tokens > 0, "global counts come with global tokens");
}
void check_losses(const OpCall& c) {
  const Check check(c);
  check_common(c, check, 3);
  check.shape(4, {4 + c[0].shape[1]});
  check.dtype(4, c[0].dtype);
}
void check_backward(const OpCall& c) {
  const Check check(c);
  check_common(c, check, 5);
  for (int i : {3, 4}) check.same_shape(i, 2), check.dtype(i, c[0].dtype);
  check.same_shape(6, 0);
  check.dtype(6, c[0].dtype);
}

void kernels_losses(const OpCall& c, const KernelChoice& choice, KernelList& out) {
  const double n = elements_of(c[0]), scores = bytes_of(c[0]), ids = bytes_of(c[2]);
  const DType d = c[0].dtype;
  if (choice == KernelClass::moetwin) {
    out.push_back(simple_kernel(KernelKind::reduction, d, 10 * n, traffic(c)));
    return;
  }
  out.push_back(simple_kernel(KernelKind::reduction, d, n, scores));       // mean of the scores
  out.push_back(simple_kernel(KernelKind::sort, DType::i32, 0, 2 * ids));  // histogram
  out.push_back(simple_kernel(KernelKind::reduction, d, 5 * n, scores));   // logsumexp
  for (int i = 0; i < 3; ++i)  // products and sums over experts, square and mean over tokens
    out.push_back(simple_kernel(KernelKind::reduction, d, 0, bytes_of(c[4])));
}
void kernels_backward(const OpCall& c, const KernelChoice& choice, KernelList& out) {
  const double n = elements_of(c[0]), scores = bytes_of(c[0]), chosen = bytes_of(c[3]);
  const DType d = c[0].dtype;
  if (choice == KernelClass::moetwin) {
    out.push_back(simple_kernel(KernelKind::reduction, d, 16 * n, traffic(c)));
    return;
  }
  out.push_back(
      simple_kernel(KernelKind::gather, d, 0, chosen + 2 * bytes_of(c[2]) + scores));  // scatter
  out.push_back(simple_kernel(KernelKind::elementwise, d, 2 * n, 3 * scores));         // balance
  out.push_back(simple_kernel(KernelKind::reduction, d, 4 * n, 3 * scores));  // softmax backward
  if (c.get<RouterLossAttr>().z != 0)
    out.push_back(simple_kernel(KernelKind::elementwise, d, 8 * n, 3 * scores));
}

}  // namespace

constinit const Op op_router_losses = {"router_losses", index_of(OpIndex::router_losses),
                                       kLosses,         check_losses,
                                       kernels_losses,  no_workspace};
constinit const Op op_router_backward = {"router_backward", index_of(OpIndex::router_backward),
                                         kBackward,         check_backward,
                                         kernels_backward,  no_workspace};

OpCall router_losses(const Tensor& logits, const Tensor& probs, const Tensor& ids,
                     const Tensor& global_counts, const Tensor& losses, RouterLossAttr attr) {
  return make_call(op_router_losses, {logits, probs, ids, global_counts, losses}, attr);
}
OpCall router_backward(const Tensor& logits, const Tensor& probs, const Tensor& ids,
                       const Tensor& weights, const Tensor& d_weights, const Tensor& global_counts,
                       const Tensor& d_logits, RouterLossAttr attr) {
  return make_call(op_router_backward,
                   {logits, probs, ids, weights, d_weights, global_counts, d_logits}, attr);
}

}  // namespace moetwin
