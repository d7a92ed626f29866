#pragma once
// The keeper of a job's store: takes requests in any order and replies now or later. Knows no
// sockets and no threads: its owner calls it from one thread at a time.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/job/store.h"

namespace moetwin {

enum class StoreRequest : uint8_t {
  set,
  get,
  gather,
  compare,
  compare_pair,
  beat,
  states,
  fail,
  post,
  clock,
  goodbye
};
/// First byte of a reply.
enum class StoreReply : uint8_t { ok, failed };

struct StoreSettings {
  int64_t world = 1;
  std::function<double()> clock;                    ///< seconds
  std::function<void(const std::string&)> on_post;  ///< may be null: bytes are dropped
};

class StoreState {
 public:
  using Reply = std::function<void(const std::string&)>;
  explicit StoreState(StoreSettings settings);

  /// A process that speaks for `rank`, from when it is known ("pid 123 on node7").
  void join(int64_t rank, const std::string& process);
  /// Its connection is closed: without goodbye() before, the job has failed.
  void gone(int64_t rank);
  int64_t joined() const;
  /// Ranks that have not joined.
  std::vector<int64_t> missing() const;

  void handle(const std::string& request, Reply reply);
  /// Ends what has waited too long. Returns seconds until it has to be called again, at most 1.
  double tick();
  void fail(const Failure& failure);
  const std::optional<Failure>& failure() const { return failure_; }

 private:
  struct Waiting {
    std::string what;  ///< for the message when nobody comes
    double deadline = 0;
    Reply reply;
  };
  struct Meeting {  ///< a gather or a compare
    std::vector<int64_t> members;
    std::map<int64_t, std::string> came;
    std::map<int64_t, Waiting> waiting;
  };
  void meet(bool comparing, const std::string& name, int64_t rank, std::vector<int64_t> members,
            const std::string& bytes, Waiting waiting);
  void find_circle(int64_t from);
  std::vector<int64_t> not_there(const Meeting& meeting) const;
  double now() const { return settings_.clock(); }

  StoreSettings settings_;
  std::map<std::string, std::string> values_;
  std::multimap<std::string, Waiting> gets_;
  std::map<std::string, Meeting> gathers_, compares_;
  std::map<std::string, std::pair<int64_t, std::string>> pairs_;
  std::map<int64_t, std::string> compares_of_;  ///< rank -> the call that it waits in
  struct Rank {
    bool joined = false, gone = false, ended = false;
    std::string process, status;
    double heard = 0;
  };
  std::vector<Rank> ranks_;
  std::optional<Failure> failure_;
};

/// Ranks as text: "rank 3", "ranks 0, 2 and 7".
std::string rank_list(const std::vector<int64_t>& ranks);

}  // namespace moetwin
