#include "tests/cuda_on_host/runtime/nccl_segment.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <stdexcept>

namespace moetwin::emulated {
namespace {

constexpr const char* kPrefix = "moetwin-nccl-";

struct flock lock_of(int rank) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

// What processes left behind that were killed before all ranks had joined.
void sweep() {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", ignored)) {
    const std::string name = entry.path().filename().string();
    int process = 0;
    if (std::sscanf(name.c_str(), "moetwin-nccl-%d-", &process) == 1 && process > 0 &&
        ::kill(process, 0) != 0 && errno == ESRCH)
      ::shm_unlink(("/" + name).c_str());
  }
}

}  // namespace

size_t Ring::put(const char* data, size_t count) {
  const uint64_t at = written.load(std::memory_order_relaxed);
  const size_t room = kRingBytes - (at - read.load(std::memory_order_acquire));
  const size_t now = std::min(room, count), first = std::min(now, kRingBytes - at % kRingBytes);
  std::memcpy(bytes + at % kRingBytes, data, first);
  std::memcpy(bytes, data + first, now - first);
  written.store(at + now, std::memory_order_release);
  return now;
}

size_t Ring::get(char* data, size_t count) {
  const uint64_t at = read.load(std::memory_order_relaxed);
  const size_t there = written.load(std::memory_order_acquire) - at;
  const size_t now = std::min(there, count), first = std::min(now, kRingBytes - at % kRingBytes);
  std::memcpy(data, bytes + at % kRingBytes, first);
  std::memcpy(data + first, bytes, now - first);
  read.store(at + now, std::memory_order_release);
  return now;
}

Segment::Segment(std::string name, int rank, int ranks)
    : name_(std::move(name)), rank_(rank), ranks_(ranks) {}

size_t Segment::bytes() const {
  const size_t head = (sizeof(Header) + 4095) / 4096 * 4096;
  return head + static_cast<size_t>(ranks_) * static_cast<size_t>(ranks_) * sizeof(Ring);
}

void Segment::map() {
  memory_ = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (memory_ == MAP_FAILED) {
    memory_ = nullptr;
    throw std::runtime_error("no shared memory for a communicator");
  }
}

bool Segment::join() {
  if (!memory_) {
    file_ = ::shm_open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file_ >= 0) {
      if (::ftruncate(file_, static_cast<off_t>(bytes())) != 0)
        throw std::runtime_error("no shared memory for a communicator");
      map();
      header().ranks = static_cast<uint32_t>(ranks_);
      header().ready.store(1, std::memory_order_release);
    } else {
      file_ = ::shm_open(name_.c_str(), O_RDWR, 0600);
      if (file_ < 0) return false;
      struct stat state = {};
      if (::fstat(file_, &state) != 0 || state.st_size == 0) {  // its maker is not that far yet
        ::close(file_);
        file_ = -1;
        return false;
      }
      if (static_cast<size_t>(state.st_size) != bytes())
        throw std::runtime_error("ranks disagree about the size of the communicator");
      map();
    }
  }
  if (!header().ready.load(std::memory_order_acquire)) return false;
  if (!counted_) {
    struct flock lock = lock_of(rank_);
    if (header().present[static_cast<size_t>(rank_)].load() ||
        ::fcntl(file_, F_OFD_SETLK, &lock) != 0)
      throw std::runtime_error("a rank joins a communicator twice");
    header().present[static_cast<size_t>(rank_)].store(1);
    counted_ = true;
    if (header().joined.fetch_add(1) + 1 == static_cast<uint32_t>(ranks_))
      ::shm_unlink(name_.c_str());  // everybody has it open: nothing to leave behind
  }
  return header().joined.load() == static_cast<uint32_t>(ranks_);
}

Ring& Segment::ring(int from, int to) {
  const size_t head = (sizeof(Header) + 4095) / 4096 * 4096;
  return *reinterpret_cast<Ring*>(static_cast<char*>(memory_) + head +
                                  static_cast<size_t>(from * ranks_ + to) * sizeof(Ring));
}

int Segment::dead_rank() const {
  if (!memory_) return -1;
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto index = static_cast<size_t>(rank);
    if (rank == rank_ || !header().present[index].load() || header().left[index].load()) continue;
    struct flock lock = lock_of(rank);
    if (::fcntl(file_, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK &&
        !header().left[index].load())
      return rank;
  }
  return -1;
}

void Segment::leave() {
  if (counted_) header().left[static_cast<size_t>(rank_)].store(1);
}

Segment::~Segment() {
  if (memory_ && header().joined.load() < static_cast<uint32_t>(ranks_))
    ::shm_unlink(name_.c_str());
  if (memory_) ::munmap(memory_, bytes());
  if (file_ >= 0) ::close(file_);
}

std::string new_segment_name() {
  sweep();
  std::random_device random;
  char name[64];
  std::snprintf(name, sizeof name, "/%s%d-%08x%08x", kPrefix, static_cast<int>(::getpid()),
                random(), random());
  return name;
}

}  // namespace moetwin::emulated
