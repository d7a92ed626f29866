#include "core/base/turns.h"

#include <boost/context/detail/fcontext.hpp>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace moetwin {

namespace {

namespace context = boost::context::detail;

/// Unwinds a first function that nobody will let go on.
struct Cancelled {};

}  // namespace

/// A stack that can be switched to.
struct Turns::Strand {
  context::fcontext_t suspended = nullptr;
  const void* bottom = nullptr;
  size_t bytes = 0;
  void* fake = nullptr;  ///< AddressSanitizer's

  /// Goes on with `to` until somebody switches back.
  void switch_to(Strand& to, Turns* turns) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&fake, to.bottom, to.bytes);
#endif
    landed(context::jump_fcontext(to.suspended, turns), to);
  }
  /// Back on this strand, or on it for the first time, from `other`.
  void landed(context::transfer_t from, Strand& other) {
    other.suspended = from.fctx;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, &other.bottom, &other.bytes);
#endif
  }
};

Turns::Turns() = default;

Turns::~Turns() { finish_first(); }

void Turns::entry(void* transfer) {
  const context::transfer_t from = *static_cast<context::transfer_t*>(transfer);
  Turns& self = *static_cast<Turns*>(from.data);
  self.first_->landed(from, *self.second_);
  // One function after the other, for ever.
  for (;;) {
    try {
      (*self.body_)();
    } catch (const Cancelled&) {
    } catch (...) {
      self.error_ = std::current_exception();
    }
    self.first_ended_ = true;  // outside of the handler: who goes on may throw too
    self.leave();
  }
}

void Turns::enter() {
  in_first_ = true;
  second_->switch_to(*first_, this);
  if (first_ended_) running_ = false;
}

void Turns::leave() {
  in_first_ = false;
  first_->switch_to(*second_, this);
}

void Turns::pass() {
  if (!running_) return;
  if (in_first_) {
    leave();
    if (cancelled_) throw Cancelled();
    return;
  }
  enter();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Turns::finish_first() {
  if (first_ended_) return;
  cancelled_ = true;
  enter();
  cancelled_ = false;
  error_ = nullptr;  // the second's error came before
}

void Turns::run(const std::function<void()>& first, const std::function<void()>& second) {
  if (!stack_) {
    stack_.reset(new char[kStackBytes]);
    first_ = std::make_unique<Strand>();
    second_ = std::make_unique<Strand>();
    first_->bottom = stack_.get();
    first_->bytes = kStackBytes;
    first_->suspended = context::make_fcontext(stack_.get() + kStackBytes, kStackBytes,
                                               [](context::transfer_t from) { entry(&from); });
  }
  body_ = &first;
  first_ended_ = false;
  running_ = true;
  struct Finish {
    Turns& turns;
    ~Finish() {
      turns.finish_first();
      turns.running_ = false;
    }
  } finish{*this};
  enter();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  second();
  running_ = false;  // the first goes on alone, without stopping
  if (first_ended_) return;
  enter();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace moetwin
