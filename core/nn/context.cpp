#include "core/nn/context.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace moetwin {

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
  device.phase(phase, phase_name(phase));
}

}  // namespace moetwin
