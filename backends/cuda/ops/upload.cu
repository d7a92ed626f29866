#include <algorithm>

#include "backends/cuda/ops/host.h"
#include "backends/cuda/ops/upload.h"

namespace moetwin::cuda_ops {
namespace {

/// A kernel has at most 4 KiB of parameters.
struct Words {
  static constexpr int64_t kMost = 480;
  int64_t v[kMost];
};

__global__ void write_words(int64_t* to, Words words, int64_t n) {
  for (int64_t i = thread_id(); i < n; i += thread_count()) to[i] = words.v[i];
}

}  // namespace

int64_t* upload(CudaLaunchContext& context, const std::vector<int64_t>& words) {
  const int64_t n = static_cast<int64_t>(words.size());
  int64_t* to = take<int64_t>(context, std::max<int64_t>(n, 1));
  for (int64_t i = 0; i < n; i += Words::kMost) {
    Words part;
    const int64_t count = std::min(Words::kMost, n - i);
    std::fill(std::copy_n(words.begin() + i, count, part.v), part.v + Words::kMost, 0);
    launch(write_words, 1, row_threads(count, 1), 0, context.stream, to + i, part, count);
  }
  return to;
}

}  // namespace moetwin::cuda_ops
