#pragma once
// Parameters and what they say about themselves. The group a gradient is summed over follows from
// these declarations alone (semantics 2), never from code in a strategy.

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_set>
#include <vector>

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

/// `count` columns (last axis) that stand at `local` on this rank and at `global` in the whole
/// tensor.
struct ColumnRange {
  int64_t global = 0, local = 0, count = 0;
};

struct Parameter {
  std::string name;  ///< global: the same in every layout, experts by global id ranges
  ParameterKind kind = ParameterKind::dense;
  GridKind grid = GridKind::dense;
  AxisUse data = AxisUse::summed;     ///< ddp or edp
  AxisUse tensor = AxisUse::same;     ///< tp or etp
  AxisUse expert = AxisUse::sharded;  ///< ep; expert grid only
  /// pp: `summed` for tied embeddings on the first and the last stage, which both add gradients.
  AxisUse pipeline = AxisUse::sharded;
  int64_t block = 0;  ///< order of the backward: gradients of a higher block are ready earlier
  bool one_dimensional = false;  ///< bias or norm: no weight decay unless asked for
  Shape shape;                   ///< local
  std::array<int64_t, 3> global{1, 1, 1}, offset{0, 0, 0},
      local{1, 1, 1};  ///< place in the global tensor; what `shape` has beyond it is padding, zero
  /// Where the columns are not one range (queries | keys | values, gate | up): their ranges, which
  /// cover local[2]; offset[2] is then 0. Empty: one range.
  std::vector<ColumnRange> columns;
  /// Of experts, once they have moved: the global id of the one in each place on this rank. Empty:
  /// consecutive ones, from `offset` on.
  std::vector<int64_t> experts;
  double init_std = 0;  ///< normal draws; 0: constant init_value
  double init_value = 0;
  uint32_t init_stream = 0;  ///< hash of the global name: equal in every layout

  Tensor value;     ///< what layers read
  Tensor gradient;  ///< real_dtype; ops add to it

  int64_t elements() const { return shape.elements(); }
  /// Elements that are part of the global tensor: the first ones of `shape`.
  int64_t placed() const { return local[0] * local[1] * local[2]; }
  /// Of experts, the axis over which they follow each other: planes of weights, rows of a bias.
  size_t expert_axis() const { return global[0] > 1 ? 0 : 1; }
  /// Where element i < placed() of this rank's part is in the whole tensor.
  int64_t global_index(int64_t i) const;
  /// The group over which the gradient is summed.
  GroupKind reduction_group() const;
  /// Whether ranks outside of that group keep equal copies with equal gradients: the lowest
  /// coordinate on the tensor axis owns it (the gradient norm counts it once).
  bool copied() const { return tensor == AxisUse::same; }
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
