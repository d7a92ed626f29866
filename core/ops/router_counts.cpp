// Ops on expert counts: scripted assignment, their sum over micro-batches, the balance bias.

#include "core/ops/router.h"
#include "core/ops/row.h"

namespace moetwin {
namespace {

constexpr Operand kScripted[] = {{"wanted", Access::read},
                                 {"probs", Access::write},
                                 {"weights", Access::write},
                                 {"ids", Access::write},
                                 {"counts", Access::write}};
constexpr Operand kAccumulate[] = {{"counts", Access::read}, {"total", Access::read_write}};
constexpr Operand kBias[] = {
    {"counts", Access::read}, {"bias", Access::read_write}, {"excess", Access::read_write, true}};

void check_scripted(const OpCall& c) {
  const Check check(c);
  const int64_t k = c.get<ScriptedAttr>().top_k;
  check.rank(1, 2);
  const int64_t tokens = check.extent(1, 0), experts = check.extent(1, 1);
  check.shape(0, {experts});
  check.dtype(0, DType::i64);
  check.real(1);
  check.shape(2, {tokens, k});
  check.dtype(2, c[1].dtype);
  check.shape(3, {tokens, k});
  check.dtype(3, DType::i32);
  check.shape(4, {experts + 1});
  check.dtype(4, DType::i64);
}
/// Priced as the learned router's selection whose place it takes.
void kernels_scripted(const OpCall& c, const KernelChoice&, KernelList& out) {
  out.push_back(simple_kernel(KernelKind::reduction, c[1].dtype, 8 * elements_of(c[1]),
                              traffic(c) + bytes_of(c[1])));
}
void check_accumulate(const OpCall& c) {
  const Check check(c);
  check.dtype(0, DType::i64);
  check.dtype(1, DType::i64);
  check.same_shape(1, 0);
}
void check_bias(const OpCall& c) {
  const Check check(c);
  check.dtype(0, DType::i64);
  check.real(1);
  check.same_shape(1, 0);
  check.real(2);
  check.same_shape(2, 0);
}
template <int flop>
void kernels_small(const OpCall& c, const KernelChoice&, KernelList& out) {
  out.push_back(
      simple_kernel(KernelKind::elementwise, c[1].dtype, flop * elements_of(c[1]), traffic(c)));
}

}  // namespace

constinit const Op op_router_scripted = {"router_scripted", index_of(OpIndex::router_scripted),
                                         kScripted,         check_scripted,
                                         kernels_scripted,  no_workspace};
constinit const Op op_accumulate_counts = {
    "accumulate_counts", index_of(OpIndex::accumulate_counts),
    kAccumulate,         check_accumulate,
    kernels_small<1>,    no_workspace};
constinit const Op op_balance_bias_update = {"balance_bias_update",
                                             index_of(OpIndex::balance_bias_update),
                                             kBias,
                                             check_bias,
                                             kernels_small<4>,
                                             no_workspace};

OpCall router_scripted(const Tensor& wanted, const Tensor& probs, const Tensor& weights,
                       const Tensor& ids, const Tensor& counts, ScriptedAttr attr) {
  return make_call(op_router_scripted, {wanted, probs, weights, ids, counts}, attr);
}
OpCall accumulate_counts(const Tensor& counts, const Tensor& total) {
  return make_call(op_accumulate_counts, {counts, total}, NoAttr{});
}
OpCall balance_bias_update(const Tensor& counts, const Tensor& bias, const Tensor& excess,
                           BiasUpdateAttr attr) {
  return make_call(op_balance_bias_update, {counts, bias, excess}, attr);
}

}  // namespace moetwin
