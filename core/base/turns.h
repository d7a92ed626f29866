#pragma once
// Two functions of one thread that take turns at places of their own choosing: the first runs on a
// stack of its own (Boost.Context), the second on the caller's. Whatever blocks the thread, or the
// actor of a simulation, blocks both.

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>

namespace moetwin {

class Turns {
 public:
  Turns();
  ~Turns();
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  /// Runs both to their ends, `first` first. What one of them throws ends the other, at its next or
  /// present pass(), and is thrown again here.
  void run(const std::function<void()>& first, const std::function<void()>& second);
  /// Called by the one that runs: the other goes on to its next pass() or its end. Nothing happens
  /// when the other has ended, or outside of run().
  void pass();
  /// Whether pass() would let another one go on.
  bool others() const { return running_; }

 private:
  struct Strand;
  void enter();  ///< the first goes on
  void leave();  ///< the second goes on
  void finish_first();
  static void entry(void* self);

  /// Deep enough for a layer's forward down to the host wait of either machine.
  static constexpr size_t kStackBytes = size_t{256} << 10;
  std::unique_ptr<char[]> stack_;  ///< made when first needed
  std::unique_ptr<Strand> first_, second_;
  const std::function<void()>* body_ = nullptr;
  std::exception_ptr error_;  ///< of the first
  bool running_ = false;      ///< both are under way
  bool in_first_ = false, first_ended_ = true, cancelled_ = false;
};

}  // namespace moetwin
