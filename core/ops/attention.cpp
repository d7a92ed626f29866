#include "core/ops/attention.h"

#include "core/ops/heads.h"

namespace moetwin {
namespace {

constexpr Operand kForward[] = {
    {"qkv", Access::read}, {"out", Access::write}, {"lse", Access::write}};
constexpr Operand kBackward[] = {{"qkv", Access::read},
                                 {"out", Access::read},
                                 {"lse", Access::read},
                                 {"d_out", Access::read},
                                 {"d_qkv", Access::write}};

HeadSizes sizes_of(const OpCall& c) { return moetwin::sizes_of(c.get<HeadsAttr>()); }
void check_forward(const OpCall& c) {
  const Check check(c);
  const HeadSizes h = sizes_of(c);
  const int64_t tokens = check_heads(check, 0, h);
  check.shape(1, {tokens, h.query * h.value});
  check.dtype(1, c[0].dtype);
  check.shape(2, {tokens, h.query});
  check.real_of(2, 0);
}
void check_backward(const OpCall& c) {
  check_forward(c);
  const Check check(c);
  check.same_shape(3, 1);
  check.dtype(3, c[0].dtype);
  check.same_shape(4, 0);
  check.dtype(4, c[0].dtype);
}

AttentionWork work_of(const OpCall& c) {
  const HeadSizes h = sizes_of(c);
  AttentionWork w;
  w.dtype = c[0].dtype;
  w.sequence = h.sequence;
  if (const int64_t keys = c.get<HeadsAttr>().other_keys; keys > 0)
    w.other_keys = keys, w.causal = false;
  w.head_dim = (h.dim + h.value) / 2;  // half of the products are with values
  w.heads = c[0].shape[0] / h.sequence * h.query;
  w.operand_bytes = traffic(c);
  return w;
}
void kernels_forward(const OpCall& c, const KernelChoice& choice, KernelList& out) {
  attention_kernels(work_of(c), false, choice, out);
}
void kernels_backward(const OpCall& c, const KernelChoice& choice, KernelList& out) {
  attention_kernels(work_of(c), true, choice, out);
}
/// The probabilities; with dropout on them also its mask, a byte an element, and what is left.
int64_t saved_forward(const OpCall& c, const KernelChoice& choice) {
  if (!keeps_scores(choice.attention)) return 0;
  const int64_t scores = c[0].shape[0] * sizes_of(c).query * work_of(c).keys();
  const int64_t bytes = scores * dtype_size(c[0].dtype);
  return choice.attention_dropout ? 2 * bytes + scores : bytes;
}
/// d_out . out for every row, and for 16-bit types the query gradient while it is summed up.
int64_t workspace_backward(const OpCall& c) {
  const HeadSizes h = sizes_of(c);
  const int64_t real = dtype_size(real_dtype(c[0].dtype));
  const bool narrow = dtype_size(c[0].dtype) < 4;
  return c[2].elements() * real + (narrow ? c[1].shape[0] * h.query * h.dim * real : 0);
}

}  // namespace

constinit const Op op_attention = {"attention",     index_of(OpIndex::attention),
                                   kForward,        check_forward,
                                   kernels_forward, no_workspace,
                                   saved_forward};
constinit const Op op_attention_backward = {"attention_backward",
                                            index_of(OpIndex::attention_backward),
                                            kBackward,
                                            check_backward,
                                            kernels_backward,
                                            workspace_backward};

OpCall attention(const Tensor& qkv, const Tensor& out, const Tensor& lse, HeadsAttr attr) {
  return make_call(op_attention, {qkv, out, lse}, attr);
}
OpCall attention_backward(const Tensor& qkv, const Tensor& out, const Tensor& lse,
                          const Tensor& d_out, const Tensor& d_qkv, HeadsAttr attr) {
  return make_call(op_attention_backward, {qkv, out, lse, d_out, d_qkv}, attr);
}

}  // namespace moetwin
