#pragma once
// How multi-head latent attention makes queries, keys and values (DeepSeek-V2, arXiv 2405.04434):
// through a latent of the queries and one that keys and values share, each with an RMS norm, and
// one rotated key for all heads. Under TP the ranks make the same latents and each its heads of
// them, so that gradients of what makes the latents are partial sums.

#include "core/nn/linear.h"
#include "core/nn/norm.h"
#include "core/ops/attention.h"
#include "core/scenario/scenario.h"

namespace moetwin {

class LatentProjection {
 public:
  struct Saved {
    Norm::Saved q_norm, kv_norm;
    Tensor q_normed, kv_normed;
  };
  LatentProjection(ParameterSet& parameters, const ModelConfig& model, const std::string& name,
                   int64_t block, const TensorParallel& tp, int64_t sequence_length);

  /// x [T,H] -> qkv [T, n (2 D + Dv)] of this rank's heads, rotated.
  Tensor forward(Context& context, const Tensor& x, Saved& saved) const;
  /// dx: this rank's part of the sum over TP.
  Tensor backward(Context& context, const Tensor& x, const Saved& saved, const Tensor& d_qkv) const;

 private:
  LatentAttr attr_;
  bool has_q_latent_ = false;
  Linear q_down_, q_up_;  ///< without a latent q_up_ reads x
  Linear kv_down_, kv_up_, k_rope_;
  Norm q_norm_, kv_norm_;
};

}  // namespace moetwin
