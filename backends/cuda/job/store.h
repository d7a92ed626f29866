#pragma once
// What the processes of a job tell each other before and beside NCCL: values by key, gathers, the
// state of every rank, and the first failure. Rank 0's process keeps it; the others ask over TCP.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace moetwin {

/// Why a job ends.
struct Failure {
  ErrorClass error_class = ErrorClass::fault;
  std::string message;
  [[noreturn]] void raise() const { throw Error(error_class, message); }
};

/// What a rank last said of itself.
struct RankHeartbeat {
  int64_t rank = 0;
  double age = 0;       ///< seconds since then
  bool gone = false;    ///< its process has ended
  bool ended = false;   ///< ... in order
  std::string process;  ///< "pid 123 on node7"
  std::string status;   ///< as beat() was given it
};

/// A client's view. Waiting calls end with the job's Failure as soon as there is one, and with
/// Error(fault) naming what is missing after `seconds`. One thread at a time.
class Store {
 public:
  virtual ~Store() = default;

  void set(const std::string& key, const std::string& value);
  std::string get(const std::string& key, double seconds);
  /// Every rank of `members` calls this with its bytes and gets all, in the order of `members`.
  std::vector<std::string> gather(const std::string& name, int64_t rank,
                                  const std::vector<int64_t>& members, const std::string& bytes,
                                  double seconds);
  /// Compares what the members are about to call: returns when all have come with equal
  /// fingerprints; otherwise fails the job with Error(deadlock) that shows the first two that
  /// differ, or the circle in which ranks wait for each other.
  void compare(const std::string& call, int64_t rank, const std::vector<int64_t>& members,
               const std::string& fingerprint, double seconds);
  /// The same for a pair, without waiting for the other side.
  void compare_pair(const std::string& call, int64_t rank, const std::string& fingerprint);
  /// Says that this rank's process is alive and how its calls stand; returns the job's failure.
  std::optional<Failure> beat(int64_t rank, const std::string& status);
  std::vector<RankHeartbeat> states();
  /// The first failure stays; returns the one that stands.
  Failure fail(const Failure& failure);
  /// Bytes for rank 0's process, in order; what it does with them is StoreSettings::on_post.
  void post(const std::string& bytes);
  /// Seconds of the store's clock.
  double clock();
  /// This rank has ended in order: the end of its process is no failure.
  void goodbye(int64_t rank);

 protected:
  /// One request and its reply, as store_state.h has them. `seconds`: how long the reply may take.
  virtual std::string exchange(const std::string& request, double seconds) = 0;

 private:
  std::string ask(const std::string& request, double seconds);
};

}  // namespace moetwin
