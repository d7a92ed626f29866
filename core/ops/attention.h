#pragma once
// Causal multi-head attention with grouped-query heads over packed projections, and rotary
// positions. Query head h reads kv head h / (nq / nkv). Sequences of S tokens never see each other.

#include "core/device/op.h"
#include "core/ops/norm.h"

namespace moetwin {

/// out [T, nq D] and lse real [T, nq] (log-sum-exp of the scaled scores). attr.scale 0 means
/// 1/sqrt(D).
OpCall attention(const Tensor& qkv, const Tensor& out, const Tensor& lse, HeadsAttr attr);
/// d_qkv from d_out; probabilities are recomputed from lse, never stored.
OpCall attention_backward(const Tensor& qkv, const Tensor& out, const Tensor& lse,
                          const Tensor& d_out, const Tensor& d_qkv, HeadsAttr attr);

/// What attention's kernels are priced by. `heads`: of all sequences together.
struct AttentionWork {
  DType dtype = DType::bf16;
  int64_t sequence = 0, head_dim = 0, heads = 0;
  bool causal = true;
  double operand_bytes = 0;  ///< of the op's operands, each read or written once
};
/// Appends the kernels of a forward or backward. Flash kernels: one, two products forward and five
/// backward over the causal half (scores are made again). Others: every step goes over whole score
/// matrices in memory.
void attention_kernels(const AttentionWork& work, bool backward, const KernelChoice& choice,
                       KernelList& out);

struct RotaryAttr {
  int64_t query_heads = 0, kv_heads = 0, head_dim = 0, sequence_length = 0;
  double base = 10000, scaling_factor = 1;  ///< angle = (position / scaling_factor) * base^(-2i/D)
  bool inverse = false;                     ///< rotate back: the backward
};
/// Rotates pairs (i, i + D/2) of every query and key head (Su et al. 2021, half-split form); in
/// place: qkv is read and written.
OpCall rotary(const Tensor& qkv, RotaryAttr attr);

}  // namespace moetwin
