#pragma once
// CRC-32 of bytes: finds every single flipped bit and every burst of up to 32.

#include <cstddef>
#include <cstdint>
#include <string>

namespace moetwin {

/// zlib's CRC-32; `before` continues an earlier one.
uint32_t checksum(const void* bytes, size_t size, uint32_t before = 0);
inline uint32_t checksum(const std::string& bytes) { return checksum(bytes.data(), bytes.size()); }

/// Eight hexadecimal digits.
std::string checksum_text(uint32_t sum);

}  // namespace moetwin
