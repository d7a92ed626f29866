#pragma once
// The one caching allocator: cuts tensors from large blocks and keeps freed pieces per stream, so
// that both machines have equal peaks by construction. Pieces are multiples of 512 bytes; requests
// up to 1 MiB share 2 MiB blocks, up to 10 MiB 20 MiB blocks, larger ones get a block of their own
// rounded up to 2 MiB. Best fit, neighbours coalesce.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <set>
#include <string>
#include <vector>

#include "core/device/backend.h"

namespace moetwin {

struct MemoryUse {
  std::array<int64_t, kMemoryClasses> bytes{};          ///< in use now, by class
  std::array<int64_t, kMemoryClasses> bytes_at_peak{};  ///< by class at the moment of the peak
  int64_t allocated = 0, peak = 0;          ///< sum over classes now, and its largest value
  int64_t reserved = 0, peak_reserved = 0;  ///< of the blocks
  int64_t host = 0;                         ///< host memory of offloaded tensors, in no class
  int64_t context = 0, communicators = 0;   ///< of DeviceProperties, as of the peak
};

class Allocator {
 public:
  /// `poison`: fill each new buffer with NaN (all bits set), so that a read before a write shows.
  Allocator(Backend& device, bool poison);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  /// A tensor whose memory may be reused from work on `stream`. Throws Error(capacity) naming rank,
  /// class, the bytes asked for, in use and available.
  Tensor allocate(const Shape& shape, DType dtype, MemoryClass memory_class, const char* name,
                  Stream stream = {0});
  /// Gives the memory back now although other tensors may still refer to it; their next use is an
  /// error of the caller.
  void release(Tensor& tensor);

  const MemoryUse& use() const { return use_; }
  /// Counts host memory that stands in for device memory.
  void add_host(int64_t bytes) { use_.host += bytes; }
  /// Peaks start again from what is in use.
  void reset_peak();
  /// Which step it is, for messages.
  void set_step(int64_t step) { step_ = step; }

 private:
  friend class Buffer;
  struct Piece {
    int64_t bytes = 0;
    bool free = true;
  };
  struct BlockPieces {
    Block block;
    int pool = 0;
    std::pmr::map<int64_t, Piece> pieces;  ///< by offset
  };
  struct FreePiece {
    int64_t bytes, block, offset;
    auto operator<=>(const FreePiece&) const = default;
  };
  void give_back(Buffer& buffer);
  std::pmr::set<FreePiece>& free_pieces(int32_t stream, int pool);
  [[noreturn]] void out_of_memory(int64_t bytes, MemoryClass memory_class, const char* name) const;

  /// Nodes of all containers here: a thousand modelled ranks allocate a million times a step.
  std::pmr::unsynchronized_pool_resource nodes_;
  Backend& device_;
  bool poison_;
  int64_t step_ = 0;
  MemoryUse use_;
  std::map<int64_t, BlockPieces> blocks_;
  std::pmr::map<std::pair<int32_t, int>, std::pmr::set<FreePiece>> free_{&nodes_};
};

}  // namespace moetwin
