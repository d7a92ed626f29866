#pragma once
// Attention whose ranks each have a part of every sequence (context parallelism), so that each
// needs the others' keys and values. Rank r of n has the r-th and the (2n - 1 - r)-th of 2n chunks,
// so that all have as many pairs of a query and an earlier key (Llama 3, arXiv 2407.21783, 3.3.2).
// Time, memory and traffic only: nothing is computed (numerics none).

#include <string>
#include <vector>

#include "core/device/communicator.h"
#include "core/nn/context.h"
#include "core/ops/norm.h"

namespace moetwin {

class ContextAttention {
 public:
  /// One rank alone.
  ContextAttention() = default;
  /// `group`: null where it has one member. `exchange`: distributed_config.
  /// context_parallel_exchange.
  ContextAttention(Communicator* group, const std::string& exchange);

  int64_t size() const { return group_ ? group_->size() : 1; }

  /// qkv [T, (nq + nkv) D + nkv Dv] of the rank's parts of sequences -> out [T, nq Dv], lse real
  /// [T, nq]. heads.sequence_length is that of a part. `kept`: what kernels keep for the backward.
  void forward(Context& context, const HeadsAttr& heads, const Tensor& qkv, const Tensor& out,
               const Tensor& lse, std::vector<Tensor>& kept) const;
  void backward(Context& context, const HeadsAttr& heads, const Tensor& qkv, const Tensor& out,
                const Tensor& lse, const Tensor& d_out, const Tensor& d_qkv) const;

 private:
  enum class Exchange : uint8_t { p2p, all_gather, a2a };

  /// Keys and values go round a ring beside the kernels (Liu et al. 2023, arXiv 2310.01889): with
  /// those of another rank either all queries see half of the keys or half of the queries all.
  void ring_forward(Context& context, const HeadsAttr& heads, const Tensor& qkv, const Tensor& out,
                    const Tensor& lse, std::vector<Tensor>& kept) const;
  void ring_backward(Context& context, const HeadsAttr& heads, const Tensor& qkv, const Tensor& out,
                     const Tensor& lse, const Tensor& d_out, const Tensor& d_qkv) const;
  /// x [n R, ...] in parts of R rows, one to each member (DeepSpeed-Ulysses, arXiv 2309.14509).
  Tensor to_all(Context& context, const Tensor& x, const char* name) const;
  /// `rows` of x to the next member of the ring, on the stream of exchanges.
  void to_next(Context& context, const Tensor& x, const Tensor& into) const;
  Tensor keys_and_values(Context& context, int64_t tokens, const HeadsAttr& heads,
                         const char* name) const;

  Communicator* group_ = nullptr;
  Exchange exchange_ = Exchange::p2p;
};

}  // namespace moetwin
