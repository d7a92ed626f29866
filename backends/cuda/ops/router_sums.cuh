#pragma once
// Sums over the tokens of a router, shared by its losses and their backward. Tokens are cut into
// scopes (where f_i and P_i are taken) and those into chunks (what one block sums).

#include "backends/cuda/ops/host.h"
#include "core/ops/router.h"

namespace moetwin::cuda_ops {

inline constexpr int64_t kChunk = 128;

struct Chunks {
  int64_t tokens, experts, rows, scopes, per_scope;  ///< rows: tokens of a scope

  __host__ __device__ int64_t count() const { return scopes * per_scope; }
  __device__ int64_t first(int64_t chunk) const {
    return chunk / per_scope * rows + chunk % per_scope * kChunk;
  }
  __device__ int64_t size(int64_t chunk) const {
    const int64_t left = rows - chunk % per_scope * kChunk;
    return left < kChunk ? left : kChunk;
  }
  /// Sum over all chunks, ascending, of sums[chunk][e].
  __device__ double total(const double* sums, int64_t e) const {
    double sum = 0;
    for (int64_t chunk = 0; chunk < count(); ++chunk) sum += sums[chunk * experts + e];
    return sum;
  }
  /// Assignments to expert e in all scopes.
  __device__ double load(const int* counts, int64_t e) const {
    double sum = 0;
    for (int64_t scope = 0; scope < scopes; ++scope)
      sum += static_cast<double>(counts[scope * experts + e]);
    return sum;
  }
};
inline Chunks chunks_of(const Tensor& logits, int64_t rows_per_scope) {
  Chunks c;
  c.tokens = logits.shape[0];
  c.experts = logits.shape[1];
  c.rows = rows_per_scope > 0 ? rows_per_scope : c.tokens;
  c.scopes = c.tokens > 0 ? c.tokens / c.rows : 0;
  c.per_scope = (c.rows + kChunk - 1) / kChunk;
  return c;
}

/// f_i: share of the assignments, from the global counts or the scope's own.
__device__ inline double share_of(const RouterLossAttr& a, const int64_t* global, int count,
                                  int64_t e, int64_t rows) {
  const double k = static_cast<double>(a.top_k);
  if (global) return static_cast<double>(global[e]) / (k * a.global_tokens);
  return static_cast<double>(count) / (k * static_cast<double>(rows));
}

/// Choices per scope and expert [scopes, E], in scratch memory.
const int* count_choices(CudaLaunchContext& context, const Tensor& ids, const Chunks& c,
                         int64_t top_k);

}  // namespace moetwin::cuda_ops
