#pragma once
// Peak rates that vendors publish: what a GPU's utilisation is measured against.

#include <string>

#include "core/device/tensor.h"

namespace moetwin {

struct Peak {
  double flop_per_second = 0;  ///< dense; 0: not known
  std::string source;
};

/// Of the GPU with this name as CUDA reports it. fp32: of the plain units, or of tensor cores with
/// TF32.
Peak peak_of(const std::string& gpu, DType dtype, bool tf32);

}  // namespace moetwin
