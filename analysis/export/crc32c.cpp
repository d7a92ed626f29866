#include "analysis/export/crc32c.h"

namespace moetwin {

uint32_t crc32c(std::string_view bytes) {
  // Reflected polynomial 0x82f63b78, bit by bit: records are short.
  uint32_t crc = 0xffffffffu;
  for (char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

}  // namespace moetwin
