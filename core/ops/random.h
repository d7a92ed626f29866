#pragma once
// What a random draw costs.

namespace moetwin {

/// Ten Philox rounds of some ten integer operations give four draws.
inline constexpr double kFlopPerDraw = 25;
/// PyTorch's dropout, each thread with a generator of its own to set up: 143e9 elements a second on
/// an A100 of 19.5 TFLOP/s at half of it (GM-SAILOR-MBS1-TP1-011 and -MBS8-TP1-011 alike).
inline constexpr double kFlopPerTorchDraw = 68;

}  // namespace moetwin
