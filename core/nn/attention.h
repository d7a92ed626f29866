#pragma once
// Causal multi-head self-attention: packed projection, optional QK norm and rotary positions, or
// the projections of latent attention; output projection. Under TP each rank has its heads, queries
// beside their keys and values, and leaves a partial sum. Under CP it has parts of the sequences.

#include <optional>
#include <vector>

#include "core/nn/context_attention.h"
#include "core/nn/latent_projection.h"
#include "core/nn/linear.h"
#include "core/ops/attention.h"
#include "core/scenario/scenario.h"

namespace moetwin {

class Attention {
 public:
  struct Saved {
    Tensor x;          ///< input of the projection
    Tensor projected;  ///< before QK norm (only with it)
    Tensor norm_rstd;
    LatentProjection::Saved latent;
    Tensor qkv;                ///< what attention reads
    Tensor out, lse;           ///< made again by the backward where they were dropped (recompute)
    std::vector<Tensor> kept;  ///< by other frameworks' kernels: score matrices
    /// Drops what attention makes again (recompute). Frameworks keep its output, which the
    /// projection behind it reads.
    void forget_core(bool and_output);
  };
  Attention() = default;
  Attention(ParameterSet& parameters, const ModelConfig& model, const std::string& name,
            double output_init_std, int64_t block, const TensorParallel& tp = {},
            const ContextAttention& cp = {});

  Tensor forward(Context& context, const Tensor& x, Saved& saved) const;
  Tensor backward(Context& context, Saved& saved, const Tensor& dy) const;

  /// Elements a token of queries and values, which alternate_products keeps.
  int64_t kept_width() const {
    return heads_.query_heads * heads_.head_dim + heads_.kv_heads * heads_.value_dim;
  }
  /// The forward again where queries, values and what attention makes of them were kept: keys, and
  /// the output's projection, which is returned. Without numerics.
  Tensor remake(Context& context, const Tensor& x, Saved& saved) const;

 private:
  /// x -> saved.qkv, and the way back from its gradient to that of x.
  void project(Context& context, const Tensor& x, Saved& saved) const;
  Tensor project_back(Context& context, const Saved& saved, const Tensor& d_qkv) const;
  RotaryAttr rotary_attr(bool inverse) const;
  /// As qk_norm counts heads: one of each where a norm is over all of them.
  HeadsAttr norm_attr() const;
  /// Scores, softmax, values: writes saved.out and saved.lse from saved.qkv.
  void core(Context& context, Saved& saved) const;
  HeadsAttr heads_;
  bool rotary_ = false, qk_norm_ = false, norm_over_all_ = false;
  RotaryAngles angles_;
  ContextAttention cp_;
  std::optional<LatentProjection> latent_;
  Linear qkv_, out_;  ///< qkv_: but for latent attention
  Parameter* gamma_q_ = nullptr;
  Parameter* gamma_k_ = nullptr;
};

}  // namespace moetwin
