#pragma once
// Where a part of a tensor lies in the whole, whatever the layout it comes from: a box, and a
// stretch of that box in row-major order.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/nn/parameter.h"

namespace moetwin {

struct TensorPart {
  std::array<int64_t, 3> global{1, 1, 1};                  ///< extents of the whole tensor
  std::array<int64_t, 3> offset{0, 0, 0}, local{1, 1, 1};  ///< the box
  int64_t begin = 0, count = 0;  ///< elements [begin, begin + count) of the box

  int64_t elements_of_whole() const { return global[0] * global[1] * global[2]; }
  int64_t elements_of_box() const { return local[0] * local[1] * local[2]; }
  bool is_whole() const { return count == elements_of_whole(); }
  bool is_box() const { return count == elements_of_box(); }
  /// Place of the first element in the whole tensor: no two parts without a common element share
  /// it.
  int64_t first() const;
  static TensorPart whole(const std::array<int64_t, 3>& extents);
};

/// Extents without those of one.
std::vector<int64_t> written_shape(const std::array<int64_t, 3>& extents);

/// Copies the elements that both parts have; `size` bytes each. The parts are of one tensor.
/// Returns how many.
int64_t copy_common(const TensorPart& from, const void* source, const TensorPart& to, void* target,
                    int64_t size);

/// A part of a tensor as checkpoints name it.
struct NamedPart {
  std::string name;
  TensorPart part;
  TensorPart here;  ///< the same elements within this rank's part, which is then the whole
};

/// Elements [begin, begin + count) of this rank's part of a parameter, as `here` counts them.
TensorPart local_part(const Parameter& parameter, int64_t begin, int64_t count);

/// Where they lie in the whole. A parameter of experts gives one tensor per expert, named by its
/// global id: `layers.1.moe.experts.w1` is `layers.1.moe.experts.3.w1` for expert 3. Each range of
/// columns of a weight that TP splits gives a part.
std::vector<NamedPart> named_parts(const Parameter& parameter, int64_t experts, int64_t begin,
                                   int64_t count);

}  // namespace moetwin
