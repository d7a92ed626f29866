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

HeadSizes sizes_of(const OpCall& c) {
  const auto a = c.get<HeadsAttr>();
  return {a.query_heads, a.kv_heads, a.head_dim, a.sequence_length};
}
void check_forward(const OpCall& c) {
  const Check check(c);
  const HeadSizes h = sizes_of(c);
  const int64_t tokens = check_heads(check, 0, h);
  check.shape(1, {tokens, h.query * h.dim});
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

struct Work {
  HeadSizes h;
  int64_t batch = 0;       ///< sequences times query heads
  double half = 0;         ///< FLOP of one product over the causal half
  double scores = 0;       ///< elements of all score matrices, whole
  double score_bytes = 0;  ///< at the activations' dtype
};
Work work_of(const OpCall& c) {
  Work w;
  w.h = sizes_of(c);
  const double s = static_cast<double>(w.h.sequence);
  w.batch = c[0].shape[0] / w.h.sequence * w.h.query;
  w.half = static_cast<double>(w.batch) * s * (s + 1) * static_cast<double>(w.h.dim);
  w.scores = static_cast<double>(w.batch) * s * s;
  w.score_bytes = w.scores * static_cast<double>(dtype_size(c[0].dtype));
  return w;
}
KernelWork flash(const OpCall& c, const Work& w, int products) {
  KernelWork k = simple_kernel(KernelKind::attention, c[0].dtype, products * w.half, traffic(c));
  k.m = k.n = w.h.sequence;
  k.k = w.h.dim;
  k.batch = w.batch;
  return k;
}
/// Megatron 2021: whole score matrices in memory, masked after the fact, with dropout on them
/// (its default, 0.1: the mask is a byte an element).
void kernels_forward(const OpCall& c, KernelClass kernel_class, KernelList& out) {
  const Work w = work_of(c);
  if (kernel_class != KernelClass::megatron_2021) {
    out.push_back(flash(c, w, 2));
    return;
  }
  const DType d = c[0].dtype;
  const int64_t s = w.h.sequence;
  const double rows = bytes_of(c[1]);  // of queries, of keys once repeated, of values, of out
  out.push_back(gemm_kernel(d, s, s, w.h.dim, w.batch, 2 * rows + w.score_bytes));
  out.push_back(simple_kernel(KernelKind::reduction, d, 6 * w.scores, 2 * w.score_bytes));
  out.push_back(
      simple_kernel(KernelKind::elementwise, d, 25 * w.scores, 2 * w.score_bytes + w.scores));
  out.push_back(gemm_kernel(d, s, w.h.dim, s, w.batch, 2 * rows + w.score_bytes));
}
void kernels_backward(const OpCall& c, KernelClass kernel_class, KernelList& out) {
  const Work w = work_of(c);
  if (kernel_class != KernelClass::megatron_2021) {
    out.push_back(flash(c, w, 5));
    return;
  }
  const DType d = c[0].dtype;
  const int64_t s = w.h.sequence;
  const double rows = bytes_of(c[1]), p = w.score_bytes;
  out.push_back(gemm_kernel(d, s, s, w.h.dim, w.batch, 2 * rows + p));  // d_probabilities
  out.push_back(gemm_kernel(d, s, w.h.dim, s, w.batch, 2 * rows + p));  // d_values
  out.push_back(simple_kernel(KernelKind::elementwise, d, w.scores, 2 * p + w.scores));
  out.push_back(simple_kernel(KernelKind::reduction, d, 4 * w.scores, 3 * p));
  out.push_back(gemm_kernel(d, s, w.h.dim, s, w.batch, 2 * rows + p));  // d_queries
  out.push_back(gemm_kernel(d, s, w.h.dim, s, w.batch, 2 * rows + p));  // d_keys
}
/// d_out . out for every row, and for 16-bit types the query gradient while it is summed up.
int64_t workspace_backward(const OpCall& c) {
  const int64_t real = dtype_size(real_dtype(c[0].dtype));
  const bool narrow = dtype_size(c[0].dtype) < 4;
  return c[2].elements() * real + (narrow ? c[1].elements() * real : 0);
}

}  // namespace

constinit const Op op_attention = {"attention",     index_of(OpIndex::attention),
                                   kForward,        check_forward,
                                   kernels_forward, no_workspace};
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
