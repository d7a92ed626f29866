#pragma once
// Runs the threads of a block, one block after the other, on the calling OS thread. A thread is a
// fiber only from the moment it has to wait for others: until then threads share one stack, one
// after the other. Deterministic; a shuffled order of blocks and threads finds races.

#include <cstdint>
#include <functional>

namespace moetwin::emulated {

/// Where a thread waits: the primitive's name and the line that calls it.
struct Site {
  const char* file = "";
  int line = 0;
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
  bool operator==(const Site&) const = default;
};

/// What the running thread knows of itself.
struct Running {
  int thread = 0, threads = 1;
  int64_t block = 0, blocks = 1;
  unsigned char* shared = nullptr;
  int64_t shared_bytes = 0;
};
/// Null outside kernels.
inline thread_local constinit Running* running = nullptr;

enum class Scope { warp, block };
inline constexpr int kWarp = 32;

/// Runs once, when the last thread has come, with what each thread brought.
using Combine = void (*)(void* const* brought, int count);
/// Waits for all threads of the scope. It is an error when one has ended or waits elsewhere.
void meet(Scope scope, const char* what, Site site, void* mine, Combine combine);
/// Ends the kernel with an error that names block and thread.
[[noreturn]] void fail(const char* what);

struct Grid {
  int64_t blocks = 1;
  int threads = 1;
  int64_t shared_bytes = 0;
};
/// Throws std::runtime_error for what a GPU would leave undefined.
void run_grid(const Grid& grid, const std::function<void()>& body);
/// Order of blocks and threads of later grids in this process: 0 ascending, else shuffled by that
/// seed.
void set_shuffle(uint64_t seed);

}  // namespace moetwin::emulated
