#pragma once
// Many Philox draws at once, bit for bit those of core/base/philox.h.

#include "core/base/philox.h"

namespace moetwin::reference {

inline constexpr int64_t kDraws = 1024;  ///< at most, at a time

/// out[i] = philox_word(key, first + i), n <= kDraws.
void draw_words(const PhiloxKey& key, uint64_t first, int64_t n, uint32_t* out);
/// out[i] = philox_uniform(key, first + i).
void draw_uniform(const PhiloxKey& key, uint64_t first, int64_t n, float* out);
/// out[i] = philox_normal(key, first + i).
void draw_normal(const PhiloxKey& key, uint64_t first, int64_t n, double* out);

}  // namespace moetwin::reference
