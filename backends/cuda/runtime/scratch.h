#pragma once
// The scratch memory of one stream (backends/cuda/ops/table.h).

#include <memory>
#include <vector>

#include "backends/cuda/ops/table.h"

namespace moetwin {

/// Grows when an op needs more than there is; nothing is given back before the end, since freeing
/// device memory waits for the whole device.
class StreamScratch : public Scratch {
 public:
  ~StreamScratch() override;
  void* take(int64_t bytes) override;
  /// A new op begins: stream order keeps it behind the last one.
  void start() { used_ = 0; }
  int64_t reserved() const { return reserved_; }

 private:
  struct Block {
    void* memory;
    int64_t bytes;
  };
  std::vector<Block> blocks_;  ///< the last one is in use
  int64_t used_ = 0, reserved_ = 0;
};

}  // namespace moetwin
