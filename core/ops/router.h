#pragma once
// The router (semantics 3 and 4), in real_dtype throughout. T tokens, E experts, k choices.
// The product x W_r is a plain gemm of the router's own copy of the input.

#include "core/base/philox.h"
#include "core/device/op.h"

namespace moetwin {

/// Multiplicative jitter on the router's own copy of the input.
struct RouterInputAttr {
  PhiloxKey key;
  double jitter = 0;
  int64_t first_token = 0;
};
/// y real [T,H] = x * U[1-eps, 1+eps]; the draw of element (t,h) has index (first_token + t) * H +
/// h. jitter 0: a cast.
OpCall router_input(const Tensor& x, const Tensor& y, RouterInputAttr attr);
/// dx (dtype of x) += dy * the same factor.
OpCall router_input_backward(const Tensor& dy, const Tensor& dx, RouterInputAttr attr);

enum class Score : int32_t { softmax, sigmoid };
enum class Noise : int32_t { none, gaussian, gumbel };
struct SelectAttr {
  Score score = Score::softmax;
  Noise noise = Noise::none;
  double noise_scale = 0;
  PhiloxKey noise_key;
  int64_t first_token =
      0;  ///< global index of token 0: noise of (t,e) has index (first_token + t) * E + e
  int64_t top_k = 1;
  int64_t groups = 1, kept_groups = 1;
  double p_norm = 0;  ///< 0: raw scores as weights
  double weight_scale = 1;
};
/// probs real [T,E] = score(logits + noise); selection by probs + bias (bias real [E] or absent),
/// ties to the lower id, group limit by the sum of the top-2 biased scores; ids i32 [T,k] in
/// descending biased score; weights real [T,k] from probs, never the bias; counts i64 [E+1]
/// (control): assignments per expert, and in [E] 1 + the index of the first token with a non-finite
/// logit, or 0. k = 1 takes a max path, bit-equal.
OpCall router_select(const Tensor& logits, const Tensor& bias, const Tensor& probs,
                     const Tensor& weights, const Tensor& ids, const Tensor& counts,
                     SelectAttr attr);

struct RouterLossAttr {
  Score score = Score::softmax;
  int64_t top_k = 1;
  int64_t rows_per_scope = 0;  ///< T (micro_batch) or S (sequence); global_batch: T
  double p_norm = 0, weight_scale = 1;
  double aux = 0, z = 0,
         importance = 0;  ///< router_backward: factors on each loss, share of the tokens included
  double weight = 1;      ///< router_losses: losses += weight * ...; a micro-batch's share
  double global_tokens =
      0;  ///< global_batch: tokens behind global_counts; 0: use the ids' own counts
};
/// losses real [4 + E]: the first four += weight * {E * sum f_i P_i (mean over scopes), mean
/// logsumexp(logits)^2, CV^2 of the summed scores, mean (n_i - mean n)^2}; [4 + e] += sum over
/// tokens of p_te / sum_j p_tj. global_counts i64 [E] (control) or absent: f_i from them. P_i of
/// normalised scores. logits are those before noise.
OpCall router_losses(const Tensor& logits, const Tensor& probs, const Tensor& ids,
                     const Tensor& global_counts, const Tensor& losses, RouterLossAttr attr);
/// d_logits real [T,E] from d_weights real [T,k] (gradient of the task loss) and the balance losses
/// with their factors.
OpCall router_backward(const Tensor& logits, const Tensor& probs, const Tensor& ids,
                       const Tensor& weights, const Tensor& d_weights, const Tensor& global_counts,
                       const Tensor& d_logits, RouterLossAttr attr);

struct ScriptedAttr {
  int64_t top_k = 1;
};
/// Assigns tokens to exactly the given counts: wanted i64 [E] (control), each at most T, sum at
/// most k T. The assignments sorted by expert go to the tokens round-robin in DealtOrder
/// (assignment a to the a % T-th token of it), so a token's experts differ and every stretch of
/// tokens gets its share of every expert; slots beyond the sum have id -1. weights 1/k, probs
/// n_i/sum n (same for all tokens), counts i64 [E+1] (control) = wanted, 0.
OpCall router_scripted(const Tensor& wanted, const Tensor& probs, const Tensor& weights,
                       const Tensor& ids, const Tensor& counts, ScriptedAttr attr);

/// total i64 [n] (control) += counts i64 [n].
OpCall accumulate_counts(const Tensor& counts, const Tensor& total);
struct BiasUpdateAttr {
  double rate = 0;
  double ema = 0;  ///< weight of the past in `excess`
};
/// b_i += rate * sign(mean n - n_i), then minus its mean (aux-loss-free balance, Wang et al. 2024;
/// recentred). bias real [E], counts i64 [E]. With `excess` real [E], or absent: first
/// excess_i = ema * excess_i + (1 - ema) * (E n_i / sum n - 1), and the bias moves by
/// -rate * sign(excess_i).
OpCall balance_bias_update(const Tensor& counts, const Tensor& bias, const Tensor& excess,
                           BiasUpdateAttr attr);

}  // namespace moetwin
