#pragma once
// Whose kernels an op stands for: frameworks launch other kernels, and keep other things, for the
// same op. core/ops lists them per class; the modelled GPU prices them.

#include <cstdint>
#include <string>

namespace moetwin {

enum class KernelClass : uint8_t { moetwin, megatron_2021, megatron_core, torch_fsdp };

/// How scores and values are computed.
enum class AttentionKernel : uint8_t {
  unfused,           ///< whole score matrices in memory: product, mask, softmax, dropout, product
  fused_softmax,     ///< as above with scale, mask and softmax in one kernel (Megatron's)
  flash,             ///< FlashAttention (Dao et al. 2022)
  flash2,            ///< FlashAttention-2 (Dao 2023), and cuDNN's and PyTorch's kernels like it
  flash_triton,      ///< the Triton version of flash
  memory_efficient,  ///< xFormers' (Rabe and Staats 2021), CUTLASS
};
inline constexpr int kAttentionKernels = 6;
const char* attention_kernel_name(AttentionKernel kernel);
/// Whether score matrices are in memory.
constexpr bool keeps_scores(AttentionKernel k) {
  return k == AttentionKernel::unfused || k == AttentionKernel::fused_softmax;
}

struct KernelChoice {
  KernelClass of = KernelClass::moetwin;
  AttentionKernel attention = AttentionKernel::flash;
  bool attention_dropout = false;  ///< on the probabilities, where they are in memory
  bool slow_draws = false;    ///< dropout takes as long as its random numbers, not as its memory
  bool fp8_products = false;  ///< linear layers' products in FP8, operands cast before them

  KernelChoice() = default;
  /// With the class's own attention: fused softmax in Megatron's of 2021, FlashAttention-2 in
  /// Megatron-Core and PyTorch.
  KernelChoice(KernelClass kernel_class);
  bool operator==(KernelClass c) const { return of == c; }
};

/// As in `cluster.kernels` and `cluster.attention` ("auto": the class's own). Throws
/// Error(configuration) listing the legal names.
KernelChoice parse_kernels(const std::string& kernels, const std::string& attention);

}  // namespace moetwin
