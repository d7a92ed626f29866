#include "tests/support/in_child.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <thread>

#include "core/base/error.h"

namespace moetwin::test {
namespace {

constexpr int kAssertionExit = 113;  // no exit code of moetwin, and below the shell's 126 to 255

enum class Outcome : int { none, result, error, exception, too_long };

// What the child leaves in the shared pages; the bytes follow.
struct Note {
  Outcome outcome = Outcome::none;
  int error_class = 0;
  size_t size = 0;
};

/// Anonymous pages that parent and child share.
class SharedPages {
 public:
  explicit SharedPages(size_t capacity) : capacity_(capacity) {
    address_ = mmap(nullptr, sizeof(Note) + capacity, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address_ == MAP_FAILED) throw std::runtime_error("in_child: mmap failed");
    new (address_) Note;
  }
  ~SharedPages() { munmap(address_, sizeof(Note) + capacity_); }
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  Note& note() { return *static_cast<Note*>(address_); }
  std::string text() { return std::string(bytes(), note().size); }
  // The outcome is written last: a child that dies while writing leaves none.
  void write(Outcome outcome, int error_class, const std::string& text) {
    if (text.size() > capacity_) {
      if (outcome == Outcome::result) return write(Outcome::too_long, 0, "");
      return write(outcome, error_class, text.substr(0, capacity_));
    }
    std::memcpy(bytes(), text.data(), text.size());
    note().size = text.size();
    note().error_class = error_class;
    note().outcome = outcome;
  }

 private:
  char* bytes() { return static_cast<char*>(address_) + sizeof(Note); }
  void* address_;
  size_t capacity_;
};

[[noreturn]] void child(const std::function<std::string()>& body, SharedPages& pages) {
  try {
    pages.write(Outcome::result, 0, body());
  } catch (const Error& error) {
    pages.write(Outcome::error, error.exit_code(), error.what());
  } catch (const std::exception& error) {
    pages.write(Outcome::exception, 0, error.what());
  } catch (...) {
    pages.write(Outcome::exception, 0, "in_child: something that is no std::exception was thrown");
  }
  std::cout.flush();
  std::fflush(nullptr);
  _exit(0);  // no destructors of globals: they belong to the parent
}

/// The status of the child, or ChildTimedOut. Polls: waitpid has no time-out.
int wait_for(pid_t child, std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  auto pause = std::chrono::microseconds(200);
  for (int status = 0;;) {
    const pid_t got = waitpid(child, &status, WNOHANG);
    if (got == child) return status;
    if (got < 0 && errno != EINTR) throw std::runtime_error("in_child: waitpid failed");
    if (std::chrono::steady_clock::now() >= end) {
      kill(-child, SIGKILL);
      kill(child, SIGKILL);  // in case it has not made its group yet
      waitpid(child, &status, 0);
      throw ChildTimedOut("in_child: still running after " + std::to_string(timeout.count()) +
                          " ms; killed");
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(10000));
  }
}

void refuse_threads() {
#ifndef __SANITIZE_THREAD__  // its own background thread is always there
  size_t threads = 0;
  for ([[maybe_unused]] const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
    ++threads;
  if (threads != 1)
    throw std::logic_error("in_child: this process has " + std::to_string(threads) +
                           " threads; fork before any thread is made");
#endif
}

}  // namespace

std::string bytes_from_child(const std::function<std::string()>& body, ChildLimits limits) {
  refuse_threads();
  SharedPages pages(limits.result_bytes);
  std::cout.flush();
  std::fflush(nullptr);  // or both processes would print what is buffered
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("in_child: fork failed");
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    setenv("MOETWIN_IN_CHILD", "1", 1);
    child(body, pages);
  }
  const int status = wait_for(pid, limits.timeout);
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    throw ChildDied(
        "in_child: ended by signal " + std::to_string(number) + " (" + strsignal(number) + ")",
        number, -1);
  }
  const int code = WEXITSTATUS(status);
  if (code == kAssertionExit)
    throw ChildDied("in_child: an assertion inside the body failed (printed above)", 0, code);
  if (code != 0 || pages.note().outcome == Outcome::none)
    throw ChildDied("in_child: exited with code " + std::to_string(code) + " and no result", 0,
                    code);
  switch (pages.note().outcome) {
    case Outcome::error:
      throw Error(static_cast<ErrorClass>(pages.note().error_class), pages.text());
    case Outcome::exception:
      throw std::runtime_error(pages.text());
    case Outcome::too_long:
      throw std::length_error("in_child: the result is longer than " +
                              std::to_string(limits.result_bytes) + " bytes");
    default:
      return pages.text();
  }
}

void leave_if_child(const std::string& failed_assertion) {
  if (std::getenv("MOETWIN_IN_CHILD") == nullptr) return;
  std::fprintf(stderr, "%s\n", failed_assertion.c_str());
  _exit(kAssertionExit);
}

}  // namespace moetwin::test
