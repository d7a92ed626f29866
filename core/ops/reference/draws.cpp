#include "core/ops/reference/draws.h"

#include <algorithm>

namespace moetwin::reference {
namespace {

constexpr int kCounters = 16;  ///< in flight, so that the compiler's vectors are full

/// The four words of kCounters counters from `block` on, in index order. 32-bit words in 64-bit
/// lanes: the products need them.
void sixteen(const PhiloxKey& key, uint64_t block, uint32_t* out) {
  constexpr uint64_t low = 0xffffffffu;
  uint64_t c0[kCounters], c1[kCounters], c2[kCounters], c3[kCounters];
  for (int i = 0; i < kCounters; ++i) {
    const uint64_t index = block + static_cast<uint64_t>(i);
    c0[i] = index & low;
    c1[i] = index >> 32;
    c2[i] = key.purpose;
    c3[i] = key.step;
  }
  uint64_t k0 = key.seed & low, k1 = key.seed >> 32;
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kCounters; ++i) {
      const uint64_t p0 = 0xD2511F53u * (c0[i] & low), p1 = 0xCD9E8D57u * (c2[i] & low);
      const uint64_t n0 = (p1 >> 32) ^ c1[i] ^ k0, n2 = (p0 >> 32) ^ c3[i] ^ k1;
      c1[i] = p1 & low;
      c3[i] = p0 & low;
      c0[i] = n0;
      c2[i] = n2;
    }
    k0 = (k0 + 0x9E3779B9u) & low;
    k1 = (k1 + 0xBB67AE85u) & low;
  }
  for (int i = 0; i < kCounters; ++i) {
    out[4 * i] = static_cast<uint32_t>(c0[i]);
    out[4 * i + 1] = static_cast<uint32_t>(c1[i]);
    out[4 * i + 2] = static_cast<uint32_t>(c2[i]);
    out[4 * i + 3] = static_cast<uint32_t>(c3[i]);
  }
}

}  // namespace

void draw_words(const PhiloxKey& key, uint64_t first, int64_t n, uint32_t* out) {
  uint32_t words[4 * kCounters];
  int64_t done = 0;
  while (done < n) {
    const uint64_t at = first + static_cast<uint64_t>(done);
    const int64_t skip = static_cast<int64_t>(at & 3);
    const int64_t count = std::min<int64_t>(4 * kCounters - skip, n - done);
    sixteen(key, at >> 2, words);
    std::copy_n(words + skip, count, out + done);
    done += count;
  }
}

void draw_uniform(const PhiloxKey& key, uint64_t first, int64_t n, float* out) {
  uint32_t words[kDraws];
  draw_words(key, first, n, words);
  for (int64_t i = 0; i < n; ++i)
    out[i] =
        (static_cast<float>(static_cast<int32_t>(words[i] >> 8)) + 0.5f) * (1.0f / 16777216.0f);
}

void draw_normal(const PhiloxKey& key, uint64_t first, int64_t n, double* out) {
  uint32_t words[kDraws];
  draw_words(key, first, n, words);
  for (int64_t i = 0; i < n; ++i) out[i] = normal_centre(normal_probability(words[i]));
  for (int64_t i = 0; i < n; ++i)  // the tails, one draw in twenty
    if (normal_is_tail(normal_probability(words[i])))
      out[i] = normal_tail(normal_probability(words[i]));
}

}  // namespace moetwin::reference
