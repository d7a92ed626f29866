#pragma once
// LayerNorm (Ba et al. 2016) and RMSNorm (Zhang and Sennrich 2019) over the last extent; statistics
// in real_dtype.

#include "core/device/op.h"

namespace moetwin {

enum class NormKind : int32_t { layer, rms };
struct NormAttr {
  NormKind kind = NormKind::layer;
  double epsilon = 1e-5;
};

/// y = (x - mean) * rstd * gamma + beta. x, y [R,H]; gamma [H]; beta [H] or absent (rms); mean
/// (layer; absent for rms) and rstd real [R].
OpCall norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& y,
            const Tensor& mean, const Tensor& rstd, NormAttr attr);
/// dx written; d_gamma += ..., d_beta += ... (rows in ascending order).
OpCall norm_backward(const Tensor& x, const Tensor& gamma, const Tensor& mean, const Tensor& rstd,
                     const Tensor& dy, const Tensor& dx, const Tensor& d_gamma,
                     const Tensor& d_beta, NormAttr attr);

/// Packed projections: qkv [T, (nq + nkv) D + nkv Dv], heads in the order q..., k..., v....
struct HeadsAttr {
  int64_t query_heads = 0, kv_heads = 0, head_dim = 0, sequence_length = 0;
  double epsilon = 1e-5;
  double scale = 0;
  int64_t value_dim = 0;  ///< Dv; 0: D
  /// Of attention without numerics: every query sees so many keys of another rank's part of the
  /// sequence (context parallel), and none of its own; 0: it sees its own and those before it.
  int64_t other_keys = 0;
  int64_t value_width() const { return value_dim ? value_dim : head_dim; }
};

/// Per-head RMS norm of the query and key heads; value heads are copied. gamma_q, gamma_k [D]; rstd
/// real [T, nq + nkv].
OpCall qk_norm(const Tensor& qkv, const Tensor& gamma_q, const Tensor& gamma_k, const Tensor& out,
               const Tensor& rstd, HeadsAttr attr);
/// d_qkv written; d_gamma_q, d_gamma_k added to.
OpCall qk_norm_backward(const Tensor& qkv, const Tensor& gamma_q, const Tensor& gamma_k,
                        const Tensor& rstd, const Tensor& d_out, const Tensor& d_qkv,
                        const Tensor& d_gamma_q, const Tensor& d_gamma_k, HeadsAttr attr);

}  // namespace moetwin
