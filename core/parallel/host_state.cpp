#include "core/parallel/host_state.h"

namespace moetwin {

HostState::HostState(Context& context, int64_t elements, DType dtype, bool momentum)
    : dtype_(dtype), momentum_(momentum) {
  const int64_t bytes = elements * dtype_size(dtype);
  context.memory.add_host(bytes * (momentum ? 3 : 1));
  if (!context.device.properties().numerics) return;
  for (const Field field : {weight, m, v})
    if (has(field)) bytes_[field].resize(static_cast<size_t>(bytes));
}

void HostState::write(Context& context, Field field, int64_t at, const Tensor& to,
                      Stream stream) const {
  const auto& bytes = bytes_[field];
  context.device.write(to, bytes.empty() ? nullptr : bytes.data() + at * dtype_size(dtype_),
                       stream);
}

void HostState::read(Context& context, Field field, int64_t at, const Tensor& from, Stream stream) {
  auto& bytes = bytes_[field];
  context.to_host(from, bytes.empty() ? nullptr : bytes.data() + at * dtype_size(dtype_), stream);
}

}  // namespace moetwin
