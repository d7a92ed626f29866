#pragma once
// What machine is emulated.

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace moetwin::emulated {

struct Settings {
  int gpus = 8;
  /// Those of them that the process sees, in its order (CUDA_VISIBLE_DEVICES); not set: all.
  std::optional<std::vector<int>> visible;
  int64_t memory_bytes = int64_t{4} << 30;  ///< of each GPU
  uint64_t seed = 1;
  /// Before each piece of work a stream sleeps with this chance, up to so many microseconds.
  double delay_chance = 1.0 / 16;
  int delay_microseconds = 100;
  /// A transfer of more bytes between two ranks never ends.
  size_t nccl_stalls_above = std::numeric_limits<size_t>::max();
};

/// Of this process. Read from MOETWIN_EMULATED_{GPUS,MEMORY,SEED,DELAY_CHANCE,DELAY_MICROSECONDS,
/// NCCL_STALLS_ABOVE} and CUDA_VISIBLE_DEVICES at first use; a test may change it before it makes
/// streams.
Settings& settings();

}  // namespace moetwin::emulated
