// The log of calls and the report of what is stuck.
#include <catch2/catch.hpp>

#include "backends/cuda/job/stuck.h"

using namespace moetwin;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

CallRecord record(int communicator, uint64_t sequence, double called) {
  CallRecord r;
  r.communicator = communicator;
  r.kind = CollectiveKind::all_to_all_v;
  r.sequence = sequence;
  r.what = "bf16 [64,512] to [80,512]";
  r.purpose = "dispatch";
  r.called = called;
  return r;
}

// Rank `rank` of three: made its communicator, ended `ended` calls, called `called`.
RankHeartbeat state(int64_t rank, uint64_t called, uint64_t ended, bool started_next) {
  CallLog log(rank);
  const int ep = log.add_communicator("ep", {0, 1, 2});
  log.created(ep);
  for (uint64_t s = 1; s <= called; ++s) {
    const uint64_t call = log.called(record(ep, s, 1));
    if (s <= ended)
      log.ended(call, 2);
    else if (started_next)
      log.started(call, 3);
  }
  RankHeartbeat state;
  state.rank = rank;
  state.process = "pid 1 on n" + std::to_string(rank);
  state.status = log.status(10).bytes();
  return state;
}

Stuck of_rank_0(uint64_t sequence) {
  Stuck s;
  s.rank = 0;
  s.group = "ep";
  s.members = {0, 1, 2};
  s.sequence = sequence;
  s.call = describe(record(0, sequence, 0), "ep");
  s.seconds = 31;
  s.limit = 30;
  return s;
}

}  // namespace

TEST_CASE("the first line names rank, collective, group, number, sizes and who is missing",
          "[P044][P045]") {
  // Rank 1 is in the call, rank 2 has only called 16.
  const Failure f = describe_stuck(
      of_rank_0(17), {state(0, 17, 16, true), state(1, 17, 16, true), state(2, 16, 16, true)});
  CHECK_THAT(f.message,
             StartsWith("rank 0 is stuck in all_to_all_v 17 of group ep (\"dispatch\"): bf16 "
                        "[64,512] to [80,512] for 31 s (distributed_config.timeout_seconds: 30); "
                        "not arrived: rank 2 of ranks 0, 1 and 2\n"));
  CHECK_THAT(f.message, Contains("rank 1 (pid 1 on n1): is in it") &&
                            Contains("rank 2 (pid 1 on n2): has not called it; last called "
                                     "all_to_all_v 16 of group ep"));
  CHECK(f.error_class == ErrorClass::deadlock);  // rank 2 lives and does something else
}

TEST_CASE("dead, ended and late ranks are told apart") {
  std::vector<RankHeartbeat> states = {state(0, 2, 1, true), state(1, 2, 1, false),
                                       state(2, 1, 1, true)};
  states[2].gone = true;
  Failure f = describe_stuck(of_rank_0(2), states);
  CHECK(f.error_class == ErrorClass::fault);
  CHECK_THAT(f.message, Contains("not arrived: ranks 1 and 2 of") &&
                            Contains("has called it, behind work that cannot go on") &&
                            Contains("its process is gone"));
  states[2].gone = false;
  states[2].age = 60;
  f = describe_stuck(of_rank_0(2), states);
  CHECK_THAT(f.message, Contains("not heard of for 60 s"));
  CHECK(f.error_class == ErrorClass::fault);
}

TEST_CASE("all have arrived and nothing moves: sizes differ", "[P041]") {
  const Failure f = describe_stuck(
      of_rank_0(2), {state(0, 2, 1, true), state(1, 2, 1, true), state(2, 2, 1, true)});
  CHECK_THAT(f.message, Contains("all 3 members have arrived: sizes differ"));
  CHECK_THAT(f.message, Contains("rank 2 (pid 1 on n2): is in it; waits in all_to_all_v 2"));
}

TEST_CASE("a communicator that one rank does not make", "[P042]") {
  Stuck s = of_rank_0(0);
  std::vector<RankHeartbeat> states = {state(0, 0, 0, true), state(1, 0, 0, true), {}};
  states[2].rank = 2;
  states[2].process = "pid 9";
  const Failure f = describe_stuck(s, states);
  CHECK_THAT(f.message, StartsWith("rank 0 could not make the communicator of group ep in 31 s") &&
                            Contains("not arrived: rank 2 of ranks 0, 1 and 2"));
}

TEST_CASE("the log keeps the last 2,000 calls") {
  CallLog log(3);
  const int c = log.add_communicator("world", {0, 3});
  for (uint64_t s = 1; s <= 5000; ++s) {
    const uint64_t call = log.called(record(c, s, static_cast<double>(s)));
    if (s < 4999) log.ended(call, static_cast<double>(s) + 1);
  }
  CHECK_FALSE(log.find(2999));
  REQUIRE(log.find(3000));
  CHECK(log.find(3000)->sequence == 3001);
  CHECK_FALSE(log.overdue(6000, 30));  // not started on the device: no time passes
  log.started(4998, 5100);
  CHECK_FALSE(log.overdue(5130, 30));
  CHECK(log.overdue(5131, 30) == 4998);
  const RankStatus status = RankStatus::read(log.status(5131).bytes());
  CHECK(status.rank == 3);
  REQUIRE(status.communicators.size() == 1);
  CHECK(status.communicators[0].called == 5000);
  CHECK(status.communicators[0].started == 4999);
  CHECK(status.communicators[0].ended == 4998);
  CHECK(status.communicators[0].waiting == Approx(31));
  CHECK_THAT(log.text(2, 5131), Contains("4999") && Contains("in it for 31 s") &&
                                    Contains("5000") && Contains("not started"));
}
