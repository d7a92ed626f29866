#pragma once
// The program that measures a machine: what every rank runs, through nothing but the core's
// boundary, so that it measures GPUs, the modelled cluster and the emulation alike.

#include "backends/sim/calibration/measurements.h"
#include "core/device/backend.h"

namespace moetwin {

/// How large and how often. Everything is a size of one rank.
struct MeasureSizes {
  DType dtype = DType::bf16;
  // Products: [m, k] x [k, n] at multiples of these.
  int64_t tokens = 8192, hidden = 4096, expert_width = 14336;
  int64_t few_experts = 8, many_experts = 64, small_expert_width = 1408;
  int64_t head_dim = 128, sequence = 4096;
  int64_t vocabulary = 50304;
  int64_t elements = int64_t{1} << 28;  ///< of what streams through memory: beyond any cache
  int64_t least_message = 64 << 10, most_message = int64_t{1} << 28;  ///< bytes, in steps of 8
  int64_t least_copy = 64 << 10, most_copy = int64_t{1} << 28;        ///< bytes, in steps of 8
  int launches = 20;                                                  ///< of one op in a row
  int rounds = 3;  ///< of those; the median counts
};
/// For a GPU; elements and messages shrink where its memory is small.
MeasureSizes sizes_for(const DeviceProperties& properties, DType dtype);
/// A hundredth of a second of arithmetic on one core: to see that everything works.
MeasureSizes tiny_sizes();

/// Runs on every rank of the world; rank 0's call fills in `into`, the others leave it alone.
/// Without numerics what needs values (the router's selection) is left out.
void measure(Backend& device, const MeasureSizes& sizes, Measurements& into);

}  // namespace moetwin
