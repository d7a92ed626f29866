#pragma once
// Parameters and what they say about themselves. The group a gradient is summed over follows from
// these declarations alone (semantics 2), never from code in a strategy.

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_set>

#include "core/device/tensor.h"
#include "core/topology/grid.h"

namespace moetwin {

enum class ParameterKind : uint8_t { dense, embedding, router, expert };
const char* parameter_kind_name(ParameterKind kind);

/// How a parameter relates to one axis of its process grid.
enum class AxisUse : uint8_t {
  sharded,  ///< each coordinate owns other elements
  summed,   ///< replicated; coordinates saw other tokens or slices: gradients are summed
  same,     ///< replicated; coordinates saw the same: gradients are equal
};

enum class GridKind : uint8_t { dense, expert };

struct Parameter {
  std::string name;  ///< global: the same in every layout, experts by global id ranges
  ParameterKind kind = ParameterKind::dense;
  GridKind grid = GridKind::dense;
  AxisUse data = AxisUse::summed;     ///< ddp or edp
  AxisUse tensor = AxisUse::same;     ///< tp or etp
  AxisUse expert = AxisUse::sharded;  ///< ep; expert grid only
  int64_t block = 0;  ///< order of the backward: gradients of a higher block are ready earlier
  bool one_dimensional = false;  ///< bias or norm: no weight decay unless asked for
  Shape shape;                   ///< local
  std::array<int64_t, 3> global{1, 1, 1}, offset{0, 0, 0},
      local{1, 1, 1};   ///< place in the global tensor
  double init_std = 0;  ///< normal draws; 0: constant init_value
  double init_value = 0;
  uint32_t init_stream = 0;  ///< hash of the global name: equal in every layout

  Tensor value;     ///< what layers read
  Tensor gradient;  ///< real_dtype; ops add to it

  int64_t elements() const { return shape.elements(); }
  /// Where element i of `value` (row-major) is in the whole parameter of all ranks (row-major).
  int64_t global_index(int64_t i) const {
    const int64_t c = i % local[2], b = i / local[2] % local[1], a = i / (local[1] * local[2]);
    return ((a + offset[0]) * global[1] + b + offset[1]) * global[2] + c + offset[2];
  }
  /// The group over which the gradient is summed.
  GroupKind reduction_group() const;
};

/// All parameters of one rank, in order of declaration. Addresses stay valid.
class ParameterSet {
 public:
  Parameter& add(Parameter parameter);
  std::deque<Parameter>& all() { return parameters_; }
  const std::deque<Parameter>& all() const { return parameters_; }

 private:
  std::deque<Parameter> parameters_;
  std::unordered_set<uint32_t> streams_;
};

}  // namespace moetwin
