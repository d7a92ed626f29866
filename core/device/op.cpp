#include "core/device/op.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/base/error.h"

namespace moetwin {
namespace {

constexpr std::array<const char*, 4> kClasses = {"moetwin", "megatron-2021", "megatron-core",
                                                 "torch-fsdp"};
constexpr std::array<const char*, kAttentionKernels> kAttention = {
    "unfused", "fused-softmax", "flash", "flash2", "flash-triton", "memory-efficient"};

template <size_t n>
int index_of(const std::array<const char*, n>& names, const std::string& name, const char* key) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    throw Error(ErrorClass::configuration, fmt::format("{} \"{}\" is not known; legal: {}", key,
                                                       name, fmt::join(names, ", ")));
  return static_cast<int>(found - names.begin());
}

AttentionKernel own_attention(KernelClass c) {
  if (c == KernelClass::moetwin) return AttentionKernel::flash;
  return c == KernelClass::megatron_2021 ? AttentionKernel::fused_softmax : AttentionKernel::flash2;
}

}  // namespace

const char* attention_kernel_name(AttentionKernel kernel) {
  return kAttention[static_cast<size_t>(kernel)];
}

KernelChoice::KernelChoice(KernelClass kernel_class)
    : of(kernel_class),
      attention(own_attention(kernel_class)),
      slow_draws(kernel_class == KernelClass::megatron_2021) {}

KernelChoice parse_kernels(const std::string& kernels, const std::string& attention) {
  // Names that differ in more than kernels: what goes on beside what.
  const std::string name = kernels == "torch-compile"   ? "megatron-core"
                           : kernels == "megatron-2022" ? "megatron-2021"
                                                        : kernels;
  KernelChoice choice(static_cast<KernelClass>(index_of(kClasses, name, "cluster.kernels")));
  if (kernels == "megatron-2022") choice.slow_draws = false;
  if (attention != "auto")
    choice.attention =
        static_cast<AttentionKernel>(index_of(kAttention, attention, "cluster.attention"));
  return choice;
}

}  // namespace moetwin
