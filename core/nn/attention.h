#pragma once
// Causal multi-head self-attention: packed projection, optional QK norm and rotary positions,
// output projection. Under TP each rank has its heads, queries beside their keys and values, and
// leaves a partial sum.

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
    Tensor qkv;       ///< what attention reads
    Tensor out, lse;  ///< made again by the backward where they were dropped (recompute)
    Tensor kept;      ///< by other frameworks' kernels: score matrices
  };
  Attention() = default;
  Attention(ParameterSet& parameters, const ModelConfig& model, const std::string& name,
            double output_init_std, int64_t block, const TensorParallel& tp = {});

  Tensor forward(Context& context, const Tensor& x, Saved& saved) const;
  Tensor backward(Context& context, Saved& saved, const Tensor& dy) const;

 private:
  RotaryAttr rotary_attr(bool inverse) const;
  /// Scores, softmax, values: writes saved.out and saved.lse from saved.qkv.
  void core(Context& context, Saved& saved) const;
  HeadsAttr heads_;
  bool rotary_ = false, qk_norm_ = false;
  double rotary_base_ = 10000, rotary_scaling_ = 1;
  Linear qkv_, out_;
  Parameter* gamma_q_ = nullptr;
  Parameter* gamma_k_ = nullptr;
};

}  // namespace moetwin
