#pragma once
// The first message on a connection to the store, and its answer: the magic and, when refused, why.

#include <cstdint>
#include <string>

#include "core/base/bytes.h"

namespace moetwin {

inline constexpr const char* kHelloMagic = "moetwin-store-1\n";
inline constexpr const char* kOtherJob = "another job";

struct Hello {
  std::string job;
  int64_t world = 0, rank = 0;
  bool watches = false;  ///< the rank's second connection
  std::string process;

  std::string bytes() const {
    return kHelloMagic +
           ByteWriter().text(job).put(world).put(rank).put(watches).text(process).take();
  }
  /// False when it is no greeting of moetwin's.
  bool read(const std::string& message) {
    const std::string magic = kHelloMagic;
    if (message.rfind(magic, 0) != 0) return false;
    const std::string rest = message.substr(magic.size());
    ByteReader reader(rest);
    job = reader.text();
    world = reader.get<int64_t>();
    rank = reader.get<int64_t>();
    watches = reader.get<bool>();
    process = reader.text();
    return true;
  }
};

}  // namespace moetwin
