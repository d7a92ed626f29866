#pragma once
// The shared memory of one communicator: a ring of bytes from every rank to every rank, and who is
// there. The same between threads and between processes. A rank holds a file lock on a byte of its
// own, which the kernel lets go when its process dies, however it dies.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace moetwin::emulated {

inline constexpr int kMostRanks = 64;
inline constexpr size_t kRingBytes = 64 << 10;

/// Bytes from one rank to another: one writer, one reader, neither waits.
struct Ring {
  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> read{0};
  alignas(64) char bytes[kRingBytes];

  /// As much as there is room for; returns how much.
  size_t put(const char* data, size_t count);
  size_t get(char* data, size_t count);
};

class Segment {
 public:
  Segment(std::string name, int rank, int ranks);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  /// One more try at joining; true when all ranks have joined. Throws std::runtime_error when ranks
  /// disagree about their number or one comes twice.
  bool join();
  Ring& ring(int from, int to);
  /// The first rank that has joined and is gone without leave(), or -1.
  int dead_rank() const;
  /// This rank ends in order: its absence is no death.
  void leave();

 private:
  struct Header {
    std::atomic<uint32_t> ready;
    uint32_t ranks;
    std::atomic<uint32_t> joined;
    std::array<std::atomic<uint8_t>, kMostRanks> present, left;
  };
  void map();
  Header& header() const { return *static_cast<Header*>(memory_); }
  size_t bytes() const;

  std::string name_;
  int rank_, ranks_;
  int file_ = -1;
  void* memory_ = nullptr;
  bool counted_ = false;
};

/// A name that no other communicator of this machine has.
std::string new_segment_name();

}  // namespace moetwin::emulated
