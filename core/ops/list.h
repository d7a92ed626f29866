#pragma once
// The one list of ops: a line here is a row of the table (x.cpp) and a reference (reference/x.cpp).

#define MOETWIN_OPS(X)        \
  X(add)                      \
  X(scaled_add)               \
  X(scale)                    \
  X(cast)                     \
  X(copy)                     \
  X(fill)                     \
  X(sum_parts)                \
  X(init_normal)              \
  X(dropout)                  \
  X(embed)                    \
  X(embed_backward)           \
  X(norm)                     \
  X(norm_backward)            \
  X(qk_norm)                  \
  X(qk_norm_backward)         \
  X(gemm)                     \
  X(bias_grad)                \
  X(grouped_gemm)             \
  X(grouped_gemm_weight_grad) \
  X(grouped_bias_grad)        \
  X(gelu)                     \
  X(gelu_backward)            \
  X(swiglu)                   \
  X(swiglu_backward)          \
  X(attention)                \
  X(attention_backward)       \
  X(rotary)                   \
  X(latent_qkv)               \
  X(latent_qkv_backward)      \
  X(router_input)             \
  X(router_input_backward)    \
  X(router_select)            \
  X(router_losses)            \
  X(router_backward)          \
  X(router_scripted)          \
  X(accumulate_counts)        \
  X(balance_bias_update)      \
  X(dispatch_plan)            \
  X(permute)                  \
  X(permute_backward)         \
  X(combine)                  \
  X(combine_backward)         \
  X(regroup)                  \
  X(cross_entropy)            \
  X(vocab_statistics)         \
  X(vocab_cross_entropy)      \
  X(adamw)                    \
  X(sgd)                      \
  X(sum_squares)              \
  X(clip_factor)

namespace moetwin {

#define MOETWIN_OP_INDEX(name) name,
enum class OpIndex : int { MOETWIN_OPS(MOETWIN_OP_INDEX) count };
#undef MOETWIN_OP_INDEX

}  // namespace moetwin
