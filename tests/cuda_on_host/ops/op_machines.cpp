// The conformance suite on the CUDA ops, kernels and all, on the host: in order, and with blocks
// and threads shuffled, which a kernel that lacks a barrier does not survive.

#include "tests/conformance/machine.h"
#include "tests/cuda_on_host/ops/op_backend.h"

namespace moetwin::conformance {

std::vector<std::unique_ptr<Machine>> machines_under_test() {
  const std::vector<DType> types = {DType::f32, DType::bf16, DType::f16};
  std::vector<std::unique_ptr<Machine>> machines;
  machines.push_back(std::make_unique<Machine>(
      "CUDA ops on the host", std::make_unique<cuda_on_host::OpBackend>(), types, true));
  return machines;
}

}  // namespace moetwin::conformance
