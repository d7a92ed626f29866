#pragma once
// Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011). A draw is a pure function
// of (seed, purpose, layer, step, global element index); it never depends on rank, thread or launch
// order.

#include <array>
#include <cstdint>

#ifdef __CUDACC__
#define MOETWIN_BOTH __host__ __device__
#else
#define MOETWIN_BOTH
#endif

namespace moetwin {

/// What a draw is for; part of the counter, so that two purposes never share numbers.
enum class Purpose : uint32_t {
  init = 1,
  jitter = 2,
  logit_noise = 3,
  dropout = 4,
  data = 5,
  workload = 6,
  probe = 7
};

/// A stream of draws: everything of the counter but the element index. At most 2^24 layers, 2^32
/// steps.
struct PhiloxKey {
  uint64_t seed = 0;
  uint32_t purpose = 0;  ///< Purpose in the top 8 bits, layer (or any sub-stream) in the low 24
  uint32_t step = 0;
};

MOETWIN_BOTH inline PhiloxKey philox_key(uint64_t seed, Purpose purpose, uint32_t layer,
                                         uint32_t step) {
  return {seed, (static_cast<uint32_t>(purpose) << 24) | (layer & 0xffffffu), step};
}

struct PhiloxBlock {
  uint32_t word[4];
};

/// The four words of counter (index, purpose|layer, step) under the seed.
MOETWIN_BOTH inline PhiloxBlock philox4x32(const PhiloxKey& key, uint64_t index) {
  uint32_t c0 = static_cast<uint32_t>(index), c1 = static_cast<uint32_t>(index >> 32);
  uint32_t c2 = key.purpose, c3 = key.step;
  uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(0xD2511F53u) * c0;
    const uint64_t p1 = static_cast<uint64_t>(0xCD9E8D57u) * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// Word `index % 4` of block `index / 4`: one 32-bit draw per element index.
MOETWIN_BOTH inline uint32_t philox_word(const PhiloxKey& key, uint64_t index) {
  return philox4x32(key, index >> 2).word[index & 3];
}

/// Uniform in (0, 1): 24 bits, exact in float, never 0 and never 1.
MOETWIN_BOTH inline float philox_uniform(const PhiloxKey& key, uint64_t index) {
  return (static_cast<float>(philox_word(key, index) >> 8) + 0.5f) * (1.0f / 16777216.0f);
}

/// Uniform integer in [0, n) by multiplication; bias below n / 2^32.
MOETWIN_BOTH inline uint32_t philox_below(const PhiloxKey& key, uint64_t index, uint32_t n) {
  return static_cast<uint32_t>((static_cast<uint64_t>(philox_word(key, index)) * n) >> 32);
}

/// Standard normal from one uniform by the inverse normal distribution, without libm, in double:
/// only +, *, / and a square root, which IEEE 754 rounds correctly, so every machine gives the same
/// bits.
MOETWIN_BOTH double philox_normal(const PhiloxKey& key, uint64_t index);

/// Natural logarithm of x > 0 from +, *, / and exponent bits only (same reason); relative error
/// below 1e-13.
MOETWIN_BOTH double portable_log(double x);

/// Standard Gumbel: -log(-log(u)).
MOETWIN_BOTH double philox_gumbel(const PhiloxKey& key, uint64_t index);

}  // namespace moetwin

#include "core/base/philox_inl.h"
