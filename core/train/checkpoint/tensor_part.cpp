#include "core/train/checkpoint/tensor_part.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"

namespace moetwin {

int64_t TensorPart::first() const {
  const int64_t column = begin % local[2], row = begin / local[2] % local[1],
                plane = begin / (local[1] * local[2]);
  return ((plane + offset[0]) * global[1] + row + offset[1]) * global[2] + column + offset[2];
}

TensorPart TensorPart::whole(const std::array<int64_t, 3>& extents) {
  TensorPart part;
  part.global = part.local = extents;
  part.count = part.elements_of_whole();
  return part;
}

std::vector<int64_t> written_shape(const std::array<int64_t, 3>& extents) {
  std::vector<int64_t> shape;
  for (const int64_t extent : extents)
    if (extent != 1) shape.push_back(extent);
  if (shape.empty()) shape.push_back(1);
  return shape;
}

int64_t copy_common(const TensorPart& from, const void* source, const TensorPart& to, void* target,
                    int64_t size) {
  int64_t copied = 0;
  // Row by row of the target's box; a row is a run of neighbours in the whole tensor.
  for (int64_t at = to.begin; at < to.begin + to.count;) {
    const int64_t line = at / to.local[2];
    const int64_t line_end = std::min((line + 1) * to.local[2], to.begin + to.count);
    const int64_t plane = line / to.local[1] + to.offset[0] - from.offset[0];
    const int64_t row = line % to.local[1] + to.offset[1] - from.offset[1];
    if (plane >= 0 && plane < from.local[0] && row >= 0 && row < from.local[1]) {
      // In the source the same elements are `shift` further on.
      const int64_t source_line = (plane * from.local[1] + row) * from.local[2];
      const int64_t shift = source_line - line * to.local[2] + to.offset[2] - from.offset[2];
      const int64_t begin = std::max({at + shift, source_line, from.begin});
      const int64_t end =
          std::min({line_end + shift, source_line + from.local[2], from.begin + from.count});
      if (begin < end) {
        std::memcpy(static_cast<char*>(target) + (begin - shift - to.begin) * size,
                    static_cast<const char*>(source) + (begin - from.begin) * size,
                    static_cast<size_t>((end - begin) * size));
        copied += end - begin;
      }
    }
    at = line_end;
  }
  return copied;
}

TensorPart local_part(const Parameter& p, int64_t begin, int64_t count) {
  return {p.local, {0, 0, 0}, p.local, begin, count};
}

namespace {
/// A stretch of rows cut by columns is a stretch of each range's box.
std::vector<NamedPart> parts_of_columns(const Parameter& p, int64_t begin, int64_t count) {
  std::vector<NamedPart> parts;
  for (const ColumnRange& range : p.columns) {
    const auto before = [&](int64_t i) {
      return i / p.local[2] * range.count +
             std::clamp<int64_t>(i % p.local[2] - range.local, 0, range.count);
    };
    NamedPart named{p.name, {}, {}};
    named.here = {p.local, {0, 0, range.local}, p.local, before(begin), 0};
    named.here.local[2] = range.count;
    named.here.count = before(begin + count) - named.here.begin;
    named.part = named.here;
    named.part.global = p.global;
    named.part.offset = {p.offset[0], p.offset[1], range.global};
    if (named.here.count > 0) parts.push_back(std::move(named));
  }
  return parts;
}
}  // namespace

std::vector<NamedPart> named_parts(const Parameter& p, int64_t experts, int64_t begin,
                                   int64_t count) {
  if (p.kind != ParameterKind::expert) {
    if (!p.columns.empty()) return parts_of_columns(p, begin, count);
    return {{p.name, {p.global, p.offset, p.local, begin, count}, local_part(p, begin, count)}};
  }
  // The extent over which experts follow each other: planes of weights, rows of the second bias.
  const size_t axis = p.global[0] % experts == 0 ? 0 : 1;
  require(p.global[axis] % experts == 0, "an expert is a block of planes or of rows");
  const int64_t extent = p.global[axis] / experts;
  require(
      p.offset[axis] % extent == 0 && p.local[axis] % extent == 0 && (axis == 0 || p.local[0] == 1),
      "a rank has whole experts, or slices of them");
  const int64_t elements = p.elements() / (p.local[axis] / extent);  // of one expert on this rank
  const size_t dot = p.name.rfind('.');
  std::vector<NamedPart> parts;
  for (int64_t at = begin; at < begin + count;) {
    const int64_t index = at / elements, end = std::min(begin + count, (index + 1) * elements);
    NamedPart named;
    const int64_t expert =
        p.experts.empty() ? p.offset[axis] / extent + index : p.experts[static_cast<size_t>(index)];
    named.name = p.name.substr(0, dot + 1) + std::to_string(expert) + p.name.substr(dot);
    named.part = {p.global, p.offset, p.local, at - index * elements, end - at};
    named.part.global[axis] = named.part.local[axis] = extent;
    named.part.offset[axis] = 0;
    named.here = local_part(p, at, end - at);
    parts.push_back(std::move(named));
    at = end;
  }
  return parts;
}

}  // namespace moetwin
