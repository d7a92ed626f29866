// The watchdog, with ranks that are made up: what it finds, says and ends.
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "backends/cuda/job/job.h"
#include "backends/cuda/job/rendezvous.h"

using namespace moetwin;
using Catch::Matchers::Contains;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class FakeRank : public WatchedRank {
 public:
  explicit FakeRank(int64_t rank) : log_(rank) {
    log_.created(log_.add_communicator("world", {0, 1}));
  }
  CallLog& log() override { return log_; }
  std::optional<std::string> look() override {
    if (starts) log_.started(0, now());
    if (error.load()) return "ncclRemoteError";
    return std::nullopt;
  }
  void abort_calls() override {
    while (abort_blocks) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    aborted = true;
  }
  void call() {
    CallRecord r;
    r.sequence = 1;
    r.kind = CollectiveKind::all_reduce;
    r.called = now();
    log_.called(r);
    starts = true;
  }
  std::atomic<bool> starts{false}, error{false}, aborted{false}, abort_blocks{false};

 private:
  CallLog log_;
};

struct Two {
  Two() {
    StoreSettings s;
    s.world = 2;
    s.clock = now;
    store = make_local_store(s);
    JobSettings j;
    j.timeout_seconds = 0.2;
    j.grace_seconds = 0.2;
    j.clock = now;
    j.hard_exit = [this](const Failure& failure) { ended_hard = failure.message; };
    job = std::make_unique<Job>(j, *store, *store);
    job->add(a, 0);
    job->add(b, 1);
  }
  ~Two() {
    job->remove(a);
    job->remove(b);
  }
  std::string wait_for_failure() const {
    while (!job->failed()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return job->failure()->message;
  }
  FakeRank a{0}, b{1};
  std::string ended_hard;
  std::unique_ptr<Store> store;
  std::unique_ptr<Job> job;
};

}  // namespace

TEST_CASE("a call that goes on too long ends the job and names who has not come", "[P044]") {
  Two two;
  two.a.call();
  CHECK_THAT(two.wait_for_failure(), Contains("rank 0 is stuck in all_reduce 1 of group world") &&
                                         Contains("not arrived: rank 1 of ranks 0 and 1") &&
                                         Contains("rank 1 (thread of pid"));
  while (!two.a.aborted || !two.b.aborted) std::this_thread::yield();
  CHECK_THROWS_AS(two.job->check(), Error);
  CHECK(two.job->failure()->error_class == ErrorClass::deadlock);
}

TEST_CASE("a rank whose program has ended is said to have") {
  Two two;
  two.b.log().program_ended();
  two.a.call();
  CHECK_THAT(two.wait_for_failure(), Contains("its program has ended"));
}

TEST_CASE("an error of the library ends the job, unless better news comes first", "[P046]") {
  Two two;
  two.b.error = true;
  CHECK(two.wait_for_failure() == "rank 1: ncclRemoteError");
  Two other;
  other.b.error = true;
  other.store->fail({ErrorClass::fault, "rank 7 is gone"});
  CHECK(other.wait_for_failure() == "rank 7 is gone");
}

TEST_CASE("where abort blocks, the process is ended hard with the failure", "[P046]") {
  Two two;
  two.a.abort_blocks = true;
  two.job->fail({ErrorClass::fault, "a peer died"});
  while (two.ended_hard.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  CHECK(two.ended_hard == "a peer died");
  two.a.abort_blocks = false;
}
