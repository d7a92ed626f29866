#pragma once
// What a random draw costs.

#include "core/device/kernel_class.h"

namespace moetwin {

/// Ten Philox rounds of some ten integer operations give four draws.
inline constexpr double kFlopPerDraw = 25;
/// Of a framework's dropout. Early PyTorch's sets up a generator in each thread: 143e9 elements a
/// second on an A100 of 19.5 TFLOP/s at half of it (GM-SAILOR-MBS1-TP1-011 and -MBS8-TP1-011
/// alike). Later ones are bound by memory (flash-attention issue 56, October 2022); so DT-KORTH,
/// DT-VTRAIN-MULTI and DT-MEGASCALE, whose median errors are 3, 4 and 2 points less for it.
inline double flop_per_dropout(const KernelChoice& choice) {
  return choice.slow_draws ? 68 : kFlopPerDraw;
}

}  // namespace moetwin
