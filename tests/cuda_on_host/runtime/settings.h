#pragma once
// What machine is emulated.

#include <cstdint>

namespace moetwin::emulated {

struct Settings {
  int gpus = 8;
  int64_t memory_bytes = int64_t{4} << 30;  ///< of each GPU
  uint64_t seed = 1;
  /// Before each piece of work a stream sleeps with this chance, up to so many microseconds.
  double delay_chance = 1.0 / 16;
  int delay_microseconds = 100;
};

/// Of this process. Read from MOETWIN_EMULATED_{GPUS,MEMORY,SEED,DELAY_CHANCE,DELAY_MICROSECONDS}
/// at first use; a test may change it before it makes streams.
Settings& settings();

}  // namespace moetwin::emulated
