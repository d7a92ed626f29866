#include "core/train/checkpoint/checksum.h"

#include <fmt/format.h>
#include <zlib.h>

namespace moetwin {

uint32_t checksum(const void* bytes, size_t size, uint32_t before) {
  return static_cast<uint32_t>(crc32_z(before, static_cast<const Bytef*>(bytes), size));
}

std::string checksum_text(uint32_t sum) { return fmt::format("{:08x}", sum); }

}  // namespace moetwin
