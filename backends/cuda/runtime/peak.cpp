#include "backends/cuda/runtime/peak.h"

namespace moetwin {
namespace {

struct Row {
  const char* part_of_name;   ///< the more special names first
  double half, tf32, single;  ///< dense TFLOP/s
  const char* source;
};
// Dense figures; data sheets print twice as much "with sparsity" for the first two.
constexpr Row kRows[] = {
    {"A100", 312, 156, 19.5, "NVIDIA A100 Tensor Core GPU data sheet"},
    {"H100 PCIe", 756, 378, 51, "NVIDIA H100 PCIe product brief"},
    {"H100 NVL", 835, 417.5, 60, "NVIDIA H100 NVL data sheet"},
    {"H100", 989.4, 494.7, 66.9, "NVIDIA H100 Tensor Core GPU data sheet (SXM)"},
    {"H200", 989.4, 494.7, 66.9, "NVIDIA H200 Tensor Core GPU data sheet (SXM)"},
    {"H800", 989.4, 494.7, 66.9, "NVIDIA H100 Tensor Core GPU data sheet (SXM)"},
    {"GB200", 2500, 1250, 80, "NVIDIA GB200 NVL72 data sheet"},
    {"B200", 2250, 1125, 75, "NVIDIA DGX B200 data sheet"},
    {"L40S", 362, 183, 91.6, "NVIDIA L40S data sheet"},
    {"A10", 125, 62.5, 31.2, "NVIDIA A10 data sheet"},
};

}  // namespace

Peak peak_of(const std::string& gpu, DType dtype, bool tf32) {
  for (const Row& row : kRows) {
    if (gpu.find(row.part_of_name) == std::string::npos) continue;
    const bool half = dtype == DType::bf16 || dtype == DType::f16;
    return {1e12 * (half ? row.half : tf32 ? row.tf32 : row.single), row.source};
  }
  return {0, "no published figure is known for " + gpu};
}

}  // namespace moetwin
