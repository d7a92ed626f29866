#pragma once
// Causal multi-head attention with grouped-query heads over packed projections, and rotary
// positions. Query head h reads kv head h / (nq / nkv). Sequences of S tokens never see each other.

#include <algorithm>
#include <cmath>

#include "core/device/op.h"
#include "core/ops/norm.h"

namespace moetwin {

/// out [T, nq Dv] and lse real [T, nq] (log-sum-exp of the scaled scores). attr.scale 0 means
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
  int64_t other_keys = 0;  ///< in the place of those of the sequence
  int64_t keys() const { return other_keys ? other_keys : sequence; }
  double operand_bytes = 0;  ///< of the op's operands, each read or written once
};
/// Appends the kernels of a forward or backward. Flash kernels: one, two products forward and five
/// backward over the causal half (scores are made again). Others: every step goes over whole score
/// matrices in memory.
void attention_kernels(const AttentionWork& work, bool backward, const KernelChoice& choice,
                       KernelList& out);

/// The angle of pair i of D / 2 at a position is position x f (1 - r + r / scaling_factor), where
/// f = base^(-2i/D) and r rises from 0 at pair ramp_begin to 1 at ramp_end: the defaults make r =
/// 1, linear interpolation; YaRN (arXiv 2309.00071) has its ramp among the pairs.
struct RotaryAngles {
  double base = 10000, scaling_factor = 1;
  double ramp_begin = -2, ramp_end = -1;
  double magnitude = 1;  ///< multiplies cosines and sines

  double step(int64_t i, int64_t dim) const {
    const double f = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
    const double r =
        std::clamp((static_cast<double>(i) - ramp_begin) / (ramp_end - ramp_begin), 0.0, 1.0);
    return f * (1 - r) + f * r / scaling_factor;
  }
  bool valid() const {
    return base > 0 && scaling_factor > 0 && ramp_begin < ramp_end && magnitude > 0;
  }
};
struct RotaryAttr : RotaryAngles {
  int64_t query_heads = 0, kv_heads = 0, head_dim = 0, sequence_length = 0;
  bool inverse = false;  ///< rotate back: the backward
};
/// Rotates pairs (i, i + D/2) of every query and key head (Su et al. 2021, half-split form); in
/// place: qkv is read and written.
OpCall rotary(const Tensor& qkv, RotaryAttr attr);

/// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): n heads of D = nope + rope
/// elements, values of Dv.
struct LatentAttr : RotaryAngles {
  int64_t heads = 0, nope_dim = 0, rope_dim = 0, value_dim = 0, sequence_length = 0;
};
/// The packed projections that attention reads, qkv [T, n (2 D + Dv)], from q [T, n D], a head's
/// elements without positions before those to be rotated; kv [T, n (nope + Dv)], a head's key
/// before its value; k_rope [T, rope], which is rotated once and is the end of every head's key.
OpCall latent_qkv(const Tensor& q, const Tensor& kv, const Tensor& k_rope, const Tensor& qkv,
                  LatentAttr attr);
/// d_q, d_kv and d_k_rope (the sum over heads) written.
OpCall latent_qkv_backward(const Tensor& d_qkv, const Tensor& d_q, const Tensor& d_kv,
                           const Tensor& d_k_rope, LatentAttr attr);

}  // namespace moetwin
