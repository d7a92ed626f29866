#pragma once
// Weights and optimizer state that are kept in host memory and visit the device for their update.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/nn/context.h"

namespace moetwin {

class HostState {
 public:
  enum Field : uint8_t { weight, m, v };
  /// `elements` of `dtype` for each field, zero; m and v only with `momentum`. With numerics none
  /// nothing is stored and copies take their time alone.
  HostState(Context& context, int64_t elements, DType dtype, bool momentum);

  bool has(Field field) const { return field == weight || momentum_; }
  /// Elements from `at` on to the device, on the stream.
  void write(Context& context, Field field, int64_t at, const Tensor& to, Stream stream) const;
  /// Back from the device; waits for the stream.
  void read(Context& context, Field field, int64_t at, const Tensor& from, Stream stream);

 private:
  DType dtype_;
  bool momentum_;
  std::array<std::vector<std::byte>, 3> bytes_;  ///< empty: not stored
};

}  // namespace moetwin
