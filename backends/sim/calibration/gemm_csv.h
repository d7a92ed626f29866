#pragma once
// Times of matrix products from a CSV file.

#include <string>
#include <vector>

#include "backends/sim/calibration/measurements.h"

namespace moetwin {

/// Columns, in any order and case: m, n, k, dtype (fp32, bf16, fp16), and one of seconds, time_ms,
/// time_us, tflops (of the product, 2mnk); where there are `op` and `gpu`, rows of other ops than
/// gemm, and of GPUs whose name does not have `gpu` in it, are passed over. Other columns are
/// ignored. Rows at fault are named in `problems` as file:line; throws Error(configuration) when a
/// column is missing or no row is left.
std::vector<KernelMeasurement> read_gemm_csv(const std::string& text, const std::string& file,
                                             const std::string& gpu,
                                             std::vector<std::string>& problems);

}  // namespace moetwin
