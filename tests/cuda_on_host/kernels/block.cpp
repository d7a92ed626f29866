#include "tests/cuda_on_host/kernels/block.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <boost/context/detail/fcontext.hpp>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/cuda_on_host/kernels/copy.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace moetwin::emulated {
namespace {

namespace context = boost::context::detail;

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStackBytes = 512 * 1024;
void leave(void** fake, const void* bottom, size_t bytes) {
  __sanitizer_start_switch_fiber(fake, bottom, bytes);
}
void arrive(void* fake, const void** bottom, size_t* bytes) {
  __sanitizer_finish_switch_fiber(fake, bottom, bytes);
}
void forget(void* stack, size_t bytes) { __asan_unpoison_memory_region(stack, bytes); }
#else
constexpr size_t kStackBytes = 128 * 1024;
void leave(void**, const void*, size_t) {}
void arrive(void*, const void**, size_t*) {}
void forget(void*, size_t) {}
#endif

std::atomic<uint64_t> shuffle_seed{0};

/// A stack with a page below it that faults.
class Stack {
 public:
  Stack() {
    base_ = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) throw std::runtime_error("no memory for the stack of a fiber");
    mprotect(base_, kPage, PROT_NONE);
  }
  ~Stack() { munmap(base_, kStackBytes); }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  void* bottom() const { return static_cast<char*>(base_) + kPage; }
  void* top() const { return static_cast<char*>(base_) + kStackBytes; }
  size_t bytes() const { return kStackBytes - kPage; }

 private:
  static constexpr size_t kPage = 4096;
  void* base_;
};

/// Something that can be switched to: the OS thread's own stack, or a fiber.
struct Strand {
  context::fcontext_t suspended = nullptr;
  const void* bottom = nullptr;
  size_t bytes = 0;
  void* fake = nullptr;  ///< AddressSanitizer's
};
struct Fiber : Strand {
  Stack stack;
};

struct Meeting {
  int arrived = 0;
  const char* what = nullptr;
  Site site;
};

class Engine {
 public:
  void run(const Grid& grid, const std::function<void()>& body);
  void meet(Scope scope, const char* what, Site site, void* mine, Combine combine);
  /// What the running thread does wrong; then it leaves its fiber for ever. Two steps, so that no
  /// text is left behind on the fiber.
  void note(const std::string& what) { failure_ = place(running_.thread) + " " + what; }
  [[noreturn]] void abandon();

 private:
  static void entry(context::transfer_t from);
  void work(Fiber& fiber);
  void run_block();
  void finish(int thread);
  void switch_to(Strand& from, Strand& to);
  void landed(context::transfer_t from);
  Strand& next();
  Fiber& idle_fiber();
  void abandon_all();
  std::string place(int thread) const;
  int first_of(Scope scope, int thread) const {
    return scope == Scope::warp ? thread / kWarp * kWarp : 0;
  }
  int size_of(Scope scope) const { return scope == Scope::warp ? kWarp : running_.threads; }
  Meeting& meeting(Scope scope, int thread) {
    return scope == Scope::warp ? warps_[static_cast<size_t>(thread / kWarp)] : whole_;
  }

  Strand main_;
  Strand* current_ = nullptr;  ///< who runs
  Strand* previous_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;

  const std::function<void()>* body_ = nullptr;
  Running running_;
  std::vector<int> order_;
  size_t started_ = 0;
  int done_ = 0;
  std::vector<int> done_in_warp_;
  std::vector<Strand*> parked_;  ///< by thread
  std::vector<void*> brought_;   ///< by thread
  std::vector<int> ready_;
  size_t ready_from_ = 0;
  Meeting whole_;
  std::vector<Meeting> warps_;
  std::mt19937_64 random_;
  bool shuffled_ = false;
  std::string failure_;
};

Engine& engine() {
  thread_local Engine instance;
  return instance;
}

std::string Engine::place(int thread) const {
  return "block " + std::to_string(running_.block) + " of " + std::to_string(running_.blocks) +
         ", thread " + std::to_string(thread) + " of " + std::to_string(running_.threads);
}
std::string at(const char* what, Site site) {
  return std::string(what) + " at " + site.file + ":" + std::to_string(site.line);
}

void Engine::landed(context::transfer_t from) {
  previous_->suspended = from.fctx;
  const void* bottom = nullptr;
  size_t bytes = 0;
  arrive(current_->fake, &bottom, &bytes);
  if (previous_ == &main_) main_.bottom = bottom, main_.bytes = bytes;
}

void Engine::switch_to(Strand& from, Strand& to) {
  previous_ = &from;
  current_ = &to;
  leave(&from.fake, to.bottom, to.bytes);
  landed(context::jump_fcontext(to.suspended, this));
}

void Engine::entry(context::transfer_t from) {
  Engine& self = *static_cast<Engine*>(from.data);
  self.landed(from);
  self.work(static_cast<Fiber&>(*self.current_));
}

/// The life of a fiber: threads that have not started, one after the other, for ever.
void Engine::work(Fiber& fiber) {
  for (;;) {
    while (started_ < order_.size() && ready_from_ == ready_.size()) {
      const int thread = order_[started_++];
      running_.thread = thread;
      (*body_)();
      finish(thread);
    }
    idle_.push_back(&fiber);
    switch_to(fiber, next());
  }
}

Fiber& Engine::idle_fiber() {
  if (idle_.empty()) {
    auto fiber = std::make_unique<Fiber>();
    fiber->suspended = context::make_fcontext(fiber->stack.top(), fiber->stack.bytes(), entry);
    fiber->bottom = fiber->stack.bottom();
    fiber->bytes = fiber->stack.bytes();
    idle_.push_back(fiber.get());
    fibers_.push_back(std::move(fiber));
  }
  Fiber* fiber = idle_.back();
  idle_.pop_back();
  return *fiber;
}

/// Who runs next: a thread whose meeting is complete, else one that has not started, else whoever
/// started the grid.
Strand& Engine::next() {
  if (ready_from_ < ready_.size()) {
    if (shuffled_) {
      const size_t pick = ready_from_ + random_() % (ready_.size() - ready_from_);
      std::swap(ready_[ready_from_], ready_[pick]);
    }
    const int thread = ready_[ready_from_++];
    if (ready_from_ == ready_.size()) ready_.clear(), ready_from_ = 0;
    running_.thread = thread;
    return *parked_[static_cast<size_t>(thread)];
  }
  if (started_ < order_.size()) return idle_fiber();
  return main_;
}

void Engine::finish(int thread) {
  ++done_;
  ++done_in_warp_[static_cast<size_t>(thread / kWarp)];
  for (Scope scope : {Scope::warp, Scope::block})
    if (const Meeting& m = meeting(scope, thread); m.arrived > 0) {
      note("ends while others wait in " + at(m.what, m.site));
      abandon();
    }
}

void Engine::meet(Scope scope, const char* what, Site site, void* mine, Combine combine) {
  const int thread = running_.thread, first = first_of(scope, thread), size = size_of(scope);
  const int ended =
      scope == Scope::warp ? done_in_warp_[static_cast<size_t>(thread / kWarp)] : done_;
  if (ended > 0) {
    note("waits in " + at(what, site) + ", but " + std::to_string(ended) + " threads have ended");
    abandon();
  }
  if (scope == Scope::block)
    if (const Meeting& m = meeting(Scope::warp, thread); m.arrived > 0) {
      note("waits in " + at(what, site) + " while its warp waits in " + at(m.what, m.site));
      abandon();
    }
  Meeting& m = meeting(scope, thread);
  if (m.arrived == 0) {
    m.what = what;
    m.site = site;
  } else if (std::strcmp(m.what, what) != 0 || !(m.site == site)) {
    note("waits in " + at(what, site) + " while others wait in " + at(m.what, m.site));
    abandon();
  }
  brought_[static_cast<size_t>(thread)] = mine;
  if (++m.arrived < size) {
    Strand& self = *current_;
    parked_[static_cast<size_t>(thread)] = &self;
    Strand& to = next();
    if (&to == &main_) {
      note("waits in " + at(what, site) + " for ever: " + std::to_string(size - m.arrived) +
           " threads wait elsewhere");
      abandon();
    }
    switch_to(self, to);
    return;
  }
  m.arrived = 0;
  if (combine) combine(brought_.data() + first, size);
  for (int i = first; i < first + size; ++i)
    if (i != thread) ready_.push_back(i);
}

void Engine::abandon() {
  switch_to(*current_, main_);
  std::abort();  // nobody comes back to an abandoned fiber
}

/// After an error fibers stand in the middle of kernels: their stacks start afresh.
void Engine::abandon_all() {
  idle_.clear();
  for (auto& fiber : fibers_) {
    forget(fiber->stack.bottom(), fiber->stack.bytes());
    fiber->fake = nullptr;
    fiber->suspended = context::make_fcontext(fiber->stack.top(), fiber->stack.bytes(), entry);
    idle_.push_back(fiber.get());
  }
}

void Engine::run_block() {
  const size_t threads = static_cast<size_t>(running_.threads);
  // What nobody wrote is NaN, and a large index.
  if (running_.shared_bytes > 0)
    std::memset(running_.shared, 0xff, static_cast<size_t>(running_.shared_bytes));
  pending_copies.clear();
  started_ = 0;
  done_ = 0;
  done_in_warp_.assign(threads / kWarp + 1, 0);
  ready_.clear();
  ready_from_ = 0;
  if (shuffled_) std::shuffle(order_.begin(), order_.end(), random_);
  current_ = &main_;
  switch_to(main_, idle_fiber());
  if (!failure_.empty()) {
    abandon_all();
    whole_ = {};
    std::fill(warps_.begin(), warps_.end(), Meeting{});
    throw std::runtime_error(std::exchange(failure_, {}));
  }
}

void Engine::run(const Grid& grid, const std::function<void()>& body) {
  if (grid.threads < 1 || grid.threads > 1024 || grid.threads % kWarp != 0)
    throw std::runtime_error("a block has whole warps and at most 1024 threads, not " +
                             std::to_string(grid.threads));
  if (grid.blocks < 1 || grid.blocks > 0x7fffffff)
    throw std::runtime_error("a grid has 1 to 2^31-1 blocks, not " + std::to_string(grid.blocks));
  if (grid.shared_bytes > 227 * 1024)
    throw std::runtime_error("a block has at most 227 KiB of shared memory, not " +
                             std::to_string(grid.shared_bytes) + " bytes");
  const size_t threads = static_cast<size_t>(grid.threads);
  // Exactly as large as asked for, so that AddressSanitizer sees accesses beyond it.
  const std::unique_ptr<unsigned char, void (*)(void*)> shared(
      grid.shared_bytes > 0 ? static_cast<unsigned char*>(std::aligned_alloc(
                                  128, static_cast<size_t>((grid.shared_bytes + 127) / 128 * 128)))
                            : nullptr,
      [](void* p) { std::free(p); });
#if defined(__SANITIZE_ADDRESS__)
  const size_t padding = static_cast<size_t>((128 - grid.shared_bytes % 128) % 128);
  if (shared) __asan_poison_memory_region(shared.get() + grid.shared_bytes, padding);
#endif
  const uint64_t seed = shuffle_seed.load();
  shuffled_ = seed != 0;
  random_.seed(seed);
  body_ = &body;
  running_ = {0, grid.threads, 0, grid.blocks, shared.get(), grid.shared_bytes};
  order_.resize(threads);
  std::iota(order_.begin(), order_.end(), 0);
  parked_.assign(threads, nullptr);
  brought_.assign(threads, nullptr);
  warps_.assign(threads / kWarp, Meeting{});
  whole_ = {};
  std::vector<int64_t> blocks;
  if (shuffled_) {
    blocks.resize(static_cast<size_t>(grid.blocks));
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random_);
  }
  running = &running_;
  try {
    for (int64_t b = 0; b < grid.blocks; ++b) {
      running_.block = shuffled_ ? blocks[static_cast<size_t>(b)] : b;
      run_block();
    }
  } catch (...) {
    running = nullptr;
    throw;
  }
  running = nullptr;
#if defined(__SANITIZE_ADDRESS__)
  if (shared) __asan_unpoison_memory_region(shared.get() + grid.shared_bytes, padding);
#endif
}

}  // namespace

void meet(Scope scope, const char* what, Site site, void* mine, Combine combine) {
  engine().meet(scope, what, site, mine, combine);
}
void fail(const char* what) {
  engine().note(what);
  engine().abandon();
}
void run_grid(const Grid& grid, const std::function<void()>& body) { engine().run(grid, body); }
void set_shuffle(uint64_t seed) { shuffle_seed.store(seed); }

}  // namespace moetwin::emulated
