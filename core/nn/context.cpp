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

}  // namespace moetwin
