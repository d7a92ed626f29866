#include "core/nn/context.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace moetwin {

Tensor Context::launch_keeping(const OpCall& call) {
  const KernelChoice& kernels = device.properties().kernels;
  const int64_t bytes = call.op->saved ? call.op->saved(call, kernels) : 0;
  Tensor kept;
  if (bytes > 0)
    kept = memory.allocate({(bytes + 1) / 2}, DType::bf16, MemoryClass::activations,
                           "kept by a framework's kernels");
  launch(call);
  return kept;
}

void Context::to_host(const Tensor& tensor, void* host, Stream stream) {
  if (host && !tensor.has_storage())
    throw Error(
        ErrorClass::internal,
        fmt::format("to_host of \"{}\", which has no storage (numerics none)", tensor.name()));
  ++host_syncs;
  device.read(tensor, host, stream);
}

void Context::exchange_under_way() {
  if (!turns || !turns->others()) return;
  device.phase(Phase::other, "");
  turns->pass();
  device.phase(phase, kResumed);
}

}  // namespace moetwin
