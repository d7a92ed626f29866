#pragma once
// Which work touched which bytes of a device's memory last, and in what order streams are known to
// run: the memory of the access check.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace moetwin {

/// Per stream, how much of its work is known to be done before: entry s counts launches on stream
/// s.
class VectorClock {
 public:
  int64_t operator[](int32_t stream) const {
    const auto s = static_cast<size_t>(stream);
    return s < counts_.size() ? counts_[s] : 0;
  }
  int64_t advance(int32_t stream);
  void join(const VectorClock& other);
  /// Everything in it is in `other` too.
  bool within(const VectorClock& other) const;

 private:
  std::vector<int64_t> counts_;
};

/// One op's use of one tensor.
struct MemoryAccess {
  int32_t stream = -1;
  int64_t count = 0;  ///< launches on its stream, this one included
  const char* op = "";
  const char* tensor = "";
  bool writes = false;
};

/// Bytes [begin, end) of a block.
struct ByteRange {
  int64_t block = -1, begin = 0, end = 0;
};

class AccessLog {
 public:
  /// The earlier access that conflicts with this one (one of them writes) and is not ordered before
  /// it by `clock`; null: none.
  const MemoryAccess* conflict(const ByteRange& range, bool writes, const VectorClock& clock);
  void note(const ByteRange& range, const MemoryAccess& access);
  void forget(int64_t block) { blocks_.erase(block); }

 private:
  struct Stretch {
    int64_t end = 0;
    MemoryAccess writer;                ///< stream -1: none
    std::vector<MemoryAccess> readers;  ///< since the writer, the latest of each stream
  };
  using Stretches = std::map<int64_t, Stretch>;  ///< by begin; never overlap
  static void split(Stretches& stretches, int64_t at);
  std::map<int64_t, Stretches> blocks_;
};

}  // namespace moetwin
