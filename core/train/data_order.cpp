#include "core/train/data_order.h"

#include <bit>

#include "core/base/error.h"
#include "core/base/philox.h"

namespace moetwin {

int64_t permuted(uint64_t seed, uint64_t epoch, int64_t n, int64_t index) {
  require(n > 0 && index >= 0 && index < n, "index inside the permutation");
  const int bits = std::bit_width(static_cast<uint64_t>(n - 1));
  const int half = bits < 2 ? 1 : (bits + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  auto at = static_cast<uint64_t>(index);
  do {
    uint64_t left = at >> half, right = at & mask;
    for (uint32_t round = 0; round < 6; ++round) {
      // The index has the half in its low 32 bits and the epoch above; sub-stream 0.
      const PhiloxKey key = philox_key(seed, Purpose::data, 0, round);
      const uint64_t mixed = philox4x32(key, (epoch << 32) | right).word[0];
      const uint64_t next = left ^ (mixed & mask);
      left = right;
      right = next;
    }
    at = (left << half) | right;
  } while (at >= static_cast<uint64_t>(n));
  return static_cast<int64_t>(at);
}

BatchOrder::BatchOrder(uint64_t seed, int64_t sequences, int64_t global_batch, int64_t step,
                       int64_t consumed)
    : seed_(seed), sequences_(sequences), batch_(global_batch), step_(step), consumed_(consumed) {
  require(sequences > 0 && global_batch > 0, "a batch order needs sequences and a batch");
}

int64_t BatchOrder::sequence(int64_t step, int64_t index_in_global_batch) const {
  require(step > step_ && index_in_global_batch >= 0 && index_in_global_batch < batch_,
          "index inside the global batch of a step behind the first");
  const int64_t place = consumed(step - 1) + index_in_global_batch;
  return permuted(seed_, static_cast<uint64_t>(place / sequences_), sequences_, place % sequences_);
}

}  // namespace moetwin
