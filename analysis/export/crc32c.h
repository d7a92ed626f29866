#pragma once
// CRC-32C (Castagnoli, RFC 3720), as TensorBoard's record files use it.

#include <cstdint>
#include <string_view>

namespace moetwin {

uint32_t crc32c(std::string_view bytes);

}  // namespace moetwin
