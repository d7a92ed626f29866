#pragma once
// Tensor-parallel collectives on the compute stream that go on beside the products next to them, as
// a framework has it (TensorParallelBeside). Estimates
// do the same to their lists (representative/product_overlap.h).

#include <algorithm>
#include <array>
#include <cstdint>

#include "backends/sim/cost/framework.h"
#include "core/device/communicator.h"
#include "core/device/profile.h"

namespace moetwin {

class BesideProducts {
 public:
  /// gather: in pieces, beside the product that reads it. reduction: in pieces, beside the product
  /// that makes it. sum: beside the latest product, which does not make it.
  enum class Way : uint8_t { none, gather, reduction, sum };

  explicit BesideProducts(const TensorParallelBeside& costs)
      : share_(1 - 1 / static_cast<double>(costs.pieces)), sums_(costs.sums) {}

  Way way_of(CollectiveKind kind, const char* purpose, Phase phase) const;
  /// Seconds by which a product of `seconds` ends earlier, for it began beside a gather.
  double product(double seconds);
  /// Seconds before the end of what stands before it that a collective may begin.
  double ahead(Way way) const;
  /// When the stream goes on that stood at `before` when a collective in [start, end) of it came.
  double ended(Way way, double before, double start, double end);

 private:
  double share_;  ///< of a collective, and of a product, that may go on beside the other
  bool sums_;
  double room_ = 0,
         product_ = 0;  ///< of the latest product: what is left of it for pieces, for sums
  std::array<double, 2> gathers_{};  ///< what may be hidden of a saved input and of a gradient
};

}  // namespace moetwin
