#pragma once
// Runs a piece of a test in a child process and hands back what it returns.
//
//   const std::string report = in_child([] { return simulate(scenario).dump(); });
//   const double seconds = in_child([] { return simulate(scenario).end.value; });
//   CHECK(seconds == 2.0);
//
// SimGrid keeps one clock per process: a second engine starts where the first one stopped. So a
// case that simulates does so in here, and this process never makes an engine. Rules:
// - call it before this process has made an engine or a thread (threads are checked for);
// - the body sees a copy of this process's memory; nothing it changes comes back but its result;
// - assert on the result, out here. A failing assertion inside the body ends the child and is an
//   error here; a passing one is not counted.

#include <chrono>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace moetwin::test {

struct ChildLimits {
  std::chrono::milliseconds timeout = std::chrono::seconds(120);
  size_t result_bytes = size_t{256} << 20;  ///< reserved, not touched: costs what the result costs
};

/// The child ended without a result: by a signal, by exit(), or by a failed assertion.
struct ChildDied : std::runtime_error {
  ChildDied(const std::string& what, int signal_number, int exit_code)
      : std::runtime_error(what), signal_number(signal_number), exit_code(exit_code) {}
  int signal_number;  ///< 0 when it exited
  int exit_code;      ///< -1 when a signal ended it
};

/// The child was still running at the time-out and has been killed with all it started.
struct ChildTimedOut : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The bytes `body` returns, run in a child. A moetwin::Error of the body is thrown again here with
/// its class and message, any other exception as std::runtime_error with its message.
/// Throws ChildDied, ChildTimedOut; std::logic_error when this process has threads;
/// std::length_error when the result is longer than the limit.
std::string bytes_from_child(const std::function<std::string()>& body, ChildLimits limits = {});

/// Called by the test program's listener when an assertion fails: ends the process if it is a
/// child of in_child, since the parent could not see the failure otherwise.
void leave_if_child(const std::string& failed_assertion);

/// The same for bodies that return nothing, a string, a trivially copyable value or a vector of
/// such values.
template <class Body>
auto in_child(Body&& body, ChildLimits limits = {}) {
  using Result = std::decay_t<std::invoke_result_t<Body&>>;
  if constexpr (std::is_void_v<Result>) {
    bytes_from_child([&] { return body(), std::string(); }, limits);
  } else if constexpr (std::is_same_v<Result, std::string>) {
    return bytes_from_child([&] { return body(); }, limits);
  } else if constexpr (std::is_trivially_copyable_v<Result>) {
    static_assert(!std::is_pointer_v<Result>, "an address means nothing in another process");
    const std::string bytes = bytes_from_child(
        [&] {
          const Result result = body();
          return std::string(reinterpret_cast<const char*>(&result), sizeof result);
        },
        limits);
    Result result;
    std::memcpy(static_cast<void*>(&result), bytes.data(), sizeof result);
    return result;
  } else {
    using Item = typename Result::value_type;
    static_assert(std::is_same_v<Result, std::vector<Item>> && std::is_trivially_copyable_v<Item>);
    const std::string bytes = bytes_from_child(
        [&] {
          const Result result = body();
          return std::string(reinterpret_cast<const char*>(result.data()),
                             result.size() * sizeof(Item));
        },
        limits);
    Result result(bytes.size() / sizeof(Item));
    if (!bytes.empty()) std::memcpy(static_cast<void*>(result.data()), bytes.data(), bytes.size());
    return result;
  }
}

}  // namespace moetwin::test
