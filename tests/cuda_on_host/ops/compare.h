#pragma once
// One op on equal inputs, by the CUDA kernels on the host and by the reference arithmetic: two
// codes that share nothing but the op's contract.

#include <random>
#include <vector>

#include "core/device/op.h"
#include "tests/cuda_on_host/ops/op_backend.h"

namespace moetwin::cuda_on_host {

/// Inputs in host memory.
class Inputs {
 public:
  explicit Inputs(uint64_t seed) : random_(seed) {}
  /// Uniform in [low, high], rounded to dtype.
  Tensor real(const Shape& shape, DType dtype, double low = -1, double high = 1);
  /// Uniform integers low to high.
  Tensor whole(const Shape& shape, DType dtype, int64_t low, int64_t high);
  Tensor list(const Shape& shape, DType dtype, const std::vector<double>& values);
  /// What an op writes: 7 everywhere, so that what it leaves alone is seen to be left alone.
  Tensor output(const Shape& shape, DType dtype);
  /// The same tensor `elements` further into a larger buffer: an address that suits no vector.
  static Tensor shifted(const Tensor& t, int64_t elements);
  int64_t number(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

 private:
  std::mt19937_64 random_;
};

/// Largest difference allowed: rel * |want| + abs * (largest |want| of the operand), in half units
/// of the last place of the operand's dtype. `at_least` is the dtype whose units are counted where
/// it is coarser.
struct Allowed {
  double rel = 8, abs = 8;
  DType at_least = DType::f32;
};

/// Runs `call`, whose tensors are Inputs', both ways and compares every operand that it writes;
/// integers exactly. Runs twice more with blocks and threads shuffled, which must give the same
/// bits.
void compare(const OpCall& call, Allowed allowed = {}, bool tf32 = false);

void each_real(const std::function<void(DType)>& body);

}  // namespace moetwin::cuda_on_host
