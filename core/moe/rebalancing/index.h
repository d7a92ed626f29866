#pragma once
// Numbers of ranks, slots and experts are int64_t, as everywhere; containers count in size_t.

#include <cstddef>
#include <cstdint>

namespace moetwin {

inline size_t at(int64_t i) { return static_cast<size_t>(i); }

}  // namespace moetwin
