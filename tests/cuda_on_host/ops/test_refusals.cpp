// What the CUDA ops refuse, and that every op of the table has a kernel.

#include <catch2/catch.hpp>

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/ops/table.h"
#include "tests/cuda_on_host/ops/compare.h"

namespace moetwin::cuda_on_host {

TEST_CASE("every op of the table has a CUDA kernel of its own") {
  std::vector<CudaKernel> seen;
  for (const Op* op : all_ops()) {
    INFO(op->name);
    const CudaKernel kernel = find_cuda_kernel(*op);
    CHECK(kernel != nullptr);
    CHECK(std::find(seen.begin(), seen.end(), kernel) == seen.end());
    seen.push_back(kernel);
  }
}

TEST_CASE("fp64 is refused with the op, the operand and what is legal") {
  Inputs in(1);
  OpBackend device;
  const Tensor x = in.real({4}, DType::f32);
  try {
    device.launch(cast(x, in.real({4}, DType::f64)), {0});
    FAIL_CHECK("not refused");
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::configuration);
    for (const char* part : {"op cast", "operand y", "fp64", "fp32, bf16, fp16", "--backend sim"})
      CHECK(std::string(error.what()).find(part) != std::string::npos);
  }
}

}  // namespace moetwin::cuda_on_host
