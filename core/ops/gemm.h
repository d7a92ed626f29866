#pragma once
// Matrix product with a fused epilogue. Weights are [in, out]: y = x W + b.

#include "core/device/op.h"

namespace moetwin {

enum class Epilogue : int32_t { none, gelu, gelu_tanh };  ///< gelu: erf form
struct GemmAttr {
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;  ///< c += ...; not with an epilogue
  Epilogue epilogue = Epilogue::none;
};

/// c = epilogue(op(a) op(b) + bias). a [M,K] (or [K,M] transposed), b [K,N] (or [N,K]), c [M,N];
/// bias [N] or absent; `pre` [M,N] gets the value before the epilogue (needed for its backward) or
/// is absent. All of one dtype, or c f32 with 16-bit a and b.
OpCall gemm(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& c,
            const Tensor& pre, GemmAttr attr);
/// d_bias[n] += sum over rows of dy[., n]. dy [M,N], d_bias [N].
OpCall bias_grad(const Tensor& dy, const Tensor& d_bias);

struct GroupedGemmAttr {
  bool transpose_b = false;
  Epilogue epilogue = Epilogue::none;
};

/// Group g of the rows of a times b[g]: a [N,K], b [G,K,M] (or [G,M,K] transposed), bias [G,M] or
/// absent, c [N,M], pre [N,M] or absent. `rows`: rows of each of the G groups, in order, from row 0
/// on; their sum is at most N; empty groups are legal.
OpCall grouped_gemm(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& c,
                    const Tensor& pre, GroupedGemmAttr attr, HostSizes rows);
/// d_b[g] += a_g^T dc_g. a [N,K], dc [N,M], d_b [G,K,M]; an empty group adds nothing.
OpCall grouped_gemm_weight_grad(const Tensor& a, const Tensor& dc, const Tensor& d_b,
                                HostSizes rows);
/// d_bias[g] += sum of the rows of dc_g. dc [N,M], d_bias [G,M].
OpCall grouped_bias_grad(const Tensor& dc, const Tensor& d_bias, HostSizes rows);

}  // namespace moetwin
