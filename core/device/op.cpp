#include "core/device/op.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace moetwin {

KernelClass parse_kernel_class(const std::string& name) {
  constexpr const char* kNames[] = {"moetwin", "megatron-2021", "megatron-core", "torch-fsdp"};
  for (int i = 0; i < 4; ++i)
    if (name == kNames[i]) return static_cast<KernelClass>(i);
  throw Error(ErrorClass::configuration,
              fmt::format("cluster.kernels \"{}\" is not known; legal: moetwin, megatron-2021, "
                          "megatron-core, torch-fsdp",
                          name));
}

}  // namespace moetwin
