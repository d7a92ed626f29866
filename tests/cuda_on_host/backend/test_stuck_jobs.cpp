// What ends a job: a process that is killed, a rank that skips or differs, one that never comes.
// All others end within the time-out and 10 s, and say what was stuck.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "core/base/error.h"
#include "core/device/allocator.h"
#include "tests/cuda_on_host/backend/ranks.h"
#include "tests/cuda_on_host/runtime/settings.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

constexpr double kTimeout = 2;

Scenario stuck_world(int64_t world) {
  Scenario s = world_of(world);
  s.distributed_config.timeout_seconds = kTimeout;
  return s;
}

Group everyone(int64_t world) {
  Group g;
  g.n1 = world;
  return g;
}

void sleep_for_ever() {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

// Rounds of all-reduce over everybody, each waited for; `before(round)` may do something else.
std::string rounds(Backend& device, int64_t count, const std::function<void(int64_t)>& before,
                   int64_t elements = 64) {
  Allocator memory(device, false);
  const Stream stream = device.stream("test");
  const auto world = device.communicator(everyone(device.properties().world), "world");
  const Tensor t = memory.allocate({elements}, DType::f32, MemoryClass::control, "t", stream);
  for (int64_t round = 1; round <= count; ++round) {
    before(round);
    world->all_reduce(t, t, ReduceOp::sum, stream, "gradients");
    device.synchronize(stream);
  }
  return "";
}

void ended_in_time(const std::vector<Ended>& ended) {
  for (const Ended& e : ended)
    CHECK(e.seconds < 60);  // far below a hang, with room for a slow machine
}

}  // namespace

TEST_CASE("a process that is killed ends the others, which name it", "[P046]") {
  const auto ended = as_processes(stuck_world(4), [](Backend& device) {
    return rounds(device, 100'000, [&](int64_t round) {
      if (device.properties().rank == 2 && round == 20) ::raise(SIGKILL);
    });
  });
  REQUIRE(ended.size() == 4);
  CHECK(ended[2].signal == SIGKILL);
  for (size_t r : {0U, 1U, 3U}) {
    CHECK(ended[r].exit_code == static_cast<int>(ErrorClass::fault));
    CHECK_THAT(ended[r].text, Contains("rank 2 (pid ") && Contains("is gone"));
  }
  ended_in_time(ended);
}

TEST_CASE("rank 0 is killed: the others say that they lost it", "[P046]") {
  const auto ended = as_processes(stuck_world(3), [](Backend& device) {
    return rounds(device, 100'000, [&](int64_t round) {
      if (device.properties().rank == 0 && round == 20) ::raise(SIGKILL);
    });
  });
  REQUIRE(ended.size() == 3);
  for (size_t r : {1U, 2U}) {
    CHECK(ended[r].exit_code == static_cast<int>(ErrorClass::fault));
    CHECK_THAT(ended[r].text, Contains("lost rank 0 at 127.0.0.1:"));
  }
}

TEST_CASE("a rank that skips a collective and ends", "[P044][P045]") {
  const RankProgram program = [](Backend& device) {
    const bool skips = device.properties().rank == 1;
    return rounds(device, skips ? 4 : 5, [](int64_t) {});
  };
  for (const bool processes : {false, true}) {
    const auto ended =
        processes ? as_processes(stuck_world(4), program) : as_threads(stuck_world(4), program);
    REQUIRE(ended.size() == 4);
    for (const Ended& e : ended) {
      // The communicator of rank 1 ends too, which waits for nobody.
      CHECK(e.exit_code == static_cast<int>(ErrorClass::deadlock));
      CHECK_THAT(e.text,
                 Contains(" is stuck in all_reduce 5 of group world (\"gradients\"): fp32 [64]") &&
                     Contains("not arrived: rank 1 of ranks 0, 1, 2 and 3") &&
                     Contains("its program has ended; last called all_reduce 4 of group world") &&
                     Contains("last calls of rank"));
    }
    ended_in_time(ended);
  }
}

TEST_CASE("a rank that skips a collective and waits in another group's", "[P038][P044]") {
  const auto ended = as_threads(stuck_world(3), [](Backend& device) {
    Allocator memory(device, false);
    const Stream stream = device.stream("test");
    const auto world = device.communicator(everyone(3), "world");
    const auto other = device.communicator(everyone(3), "other");
    const Tensor t = memory.allocate({8}, DType::f32, MemoryClass::control, "t", stream);
    world->all_reduce(t, t, ReduceOp::sum, stream, "gradients");
    if (device.properties().rank == 1) other->barrier(stream);
    world->all_reduce(t, t, ReduceOp::sum, stream, "gradients");
    device.synchronize(stream);
    return std::string();
  });
  for (const Ended& e : ended) {
    CHECK(e.exit_code == static_cast<int>(ErrorClass::deadlock));
    // Whichever rank's time is up first: each side names the other.
    if (e.text.find("stuck in barrier") == std::string::npos)
      CHECK_THAT(e.text,
                 Contains("stuck in all_reduce 2 of group world") &&
                     Contains("not arrived: rank 1 of ranks 0, 1 and 2") &&
                     Contains("has called it, behind work that cannot go on; waits in all_reduce "
                              "2") &&
                     Contains("waits in barrier 1 of group other"));
    else
      CHECK_THAT(e.text,
                 Contains("not arrived: ranks 0 and 2 of") && Contains("has not called it"));
  }
}

TEST_CASE("a rank whose host thread hangs is ended hard", "[P041][P046]") {
  Scenario s = stuck_world(2);
  CudaOptions options = emulated_options();
  options.grace_seconds = 1;
  const auto ended = as_processes(
      s,
      [](Backend& device) {
        return rounds(device, 10, [&](int64_t round) {
          if (device.properties().rank == 1 && round == 3) sleep_for_ever();
        });
      },
      options);
  REQUIRE(ended.size() == 2);
  CHECK_THAT(ended[0].text,
             Contains("all_reduce 3 of group world") && Contains("not arrived: rank 1"));
  CHECK(ended[0].exit_code == static_cast<int>(ErrorClass::deadlock));
  CHECK(ended[1].exit_code == static_cast<int>(ErrorClass::deadlock));  // from its watchdog
  CHECK(ended[1].text == "");
  ended_in_time(ended);
}

TEST_CASE("a process that is stopped is said not to be heard of") {
  Scenario s = stuck_world(2);
  s.distributed_config.timeout_seconds = 7;
  const auto ended = as_processes(
      s,
      [](Backend& device) {
        return rounds(device, 10, [&](int64_t round) {
          if (device.properties().rank == 1 && round == 3) ::raise(SIGSTOP);
        });
      },
      emulated_options(), nullptr, 25);
  REQUIRE(ended.size() == 2);
  CHECK(ended[0].exit_code == static_cast<int>(ErrorClass::fault));
  CHECK_THAT(ended[0].text, Contains("not arrived: rank 1") && Contains("not heard of for"));
}

TEST_CASE("sizes that differ are named with both ranks", "[P041]") {
  const RankProgram program = [](Backend& device) {
    return rounds(
        device, 1, [](int64_t) {}, device.properties().rank == 0 ? 200'000 : 100'000);
  };
  Scenario s = stuck_world(2);
  auto ended = as_processes(s, program);
  for (const Ended& e : ended) {
    CHECK(e.exit_code != 0);
    CHECK_THAT(e.text, Contains("all_reduce 1 of group world (\"gradients\"): fp32 [200000]") &&
                           Contains("fp32 [100000]"));
  }
  s.distributed_config.check_collectives = true;
  ended = as_processes(s, program);
  for (const Ended& e : ended) {
    CHECK(e.exit_code == static_cast<int>(ErrorClass::deadlock));
    CHECK_THAT(e.text, Contains("ranks ") && Contains("disagree about call 1 of group world") &&
                           Contains("all_reduce(sum of 200000 x fp32)") &&
                           Contains("all_reduce(sum of 100000 x fp32)"));
  }
}

TEST_CASE("two groups in different orders", "[P036]") {
  Scenario s = stuck_world(2);
  s.distributed_config.check_collectives = true;
  const auto ended = as_threads(s, [](Backend& device) {
    Allocator memory(device, false);
    const Stream a = device.stream("a"), b = device.stream("b");
    const auto first = device.communicator(everyone(2), "A"),
               second = device.communicator(everyone(2), "B");
    const Tensor t = memory.allocate({8}, DType::f32, MemoryClass::control, "t", a);
    const Tensor u = memory.allocate({8}, DType::f32, MemoryClass::control, "u", b);
    const auto reduce = [&] { first->all_reduce(t, t, ReduceOp::sum, a, "a"); };
    const auto gather = [&] { second->all_reduce(u, u, ReduceOp::max, b, "b"); };
    if (device.properties().rank == 0)
      reduce(), gather();
    else
      gather(), reduce();
    return std::string();
  });
  for (const Ended& e : ended) {
    CHECK(e.exit_code == static_cast<int>(ErrorClass::deadlock));
    CHECK_THAT(e.text, Contains("deadlock: ranks call collectives in different orders") &&
                           Contains("rank 0 is at call 1 of group A") &&
                           Contains("rank 1 is at call 1 of group B"));
  }
}

TEST_CASE("a rank that never makes the communicator is named", "[P042]") {
  const auto ended = as_threads(stuck_world(2), [](Backend& device) {
    if (device.properties().rank == 1) {
      std::this_thread::sleep_for(std::chrono::seconds(4));
      device.synchronize(device.stream("test"));
      return std::string();
    }
    device.communicator(everyone(2), "world");
    return std::string();
  });
  for (const Ended& e : ended)
    CHECK_THAT(e.text, StartsWith("rank 0 could not make the communicator of group world") &&
                           Contains("not arrived: rank 1 of ranks 0 and 1"));
}

TEST_CASE("an error of one rank is everybody's, with its class") {
  const RankProgram program = [](Backend& device) {
    return rounds(device, 10, [&](int64_t round) {
      if (device.properties().rank == 1 && round == 2)
        throw Error(ErrorClass::non_finite, "rank 1: NaN in the logits of layer 3");
    });
  };
  for (const bool processes : {false, true})
    for (const Ended& e :
         processes ? as_processes(stuck_world(3), program) : as_threads(stuck_world(3), program)) {
      CHECK(e.exit_code == static_cast<int>(ErrorClass::non_finite));
      CHECK(e.text == "rank 1: NaN in the logits of layer 3");
    }
}

TEST_CASE("abort ends the job with its message") {
  for (const Ended& e : as_processes(stuck_world(2), [](Backend& device) {
         return rounds(device, 10, [&](int64_t round) {
           if (device.properties().rank == 0 && round == 2) device.abort("rank 0 gives up");
         });
       })) {
    CHECK(e.exit_code == static_cast<int>(ErrorClass::fault));
    CHECK(e.text == "rank 0 gives up");
  }
}

TEST_CASE("exchanges that hang above some size end the job before it trains", "[P163]") {
  Scenario s = stuck_world(2);
  s.nccl["NCCL_MAX_P2P_NCHANNELS"] = "32";
  CudaOptions options = emulated_options();
  options.self_test_bytes = 1 << 20;
  AroundRun around;
  around.before = [](CudaCluster&) { emulated::settings().nccl_stalls_above = 100'000; };
  const RankProgram program = [](Backend&) { return std::string("it ran"); };
  for (const bool processes : {false, true}) {
    const auto ended = processes ? as_processes(s, program, options, nullptr, 100, around)
                                 : as_threads(s, program, options, around);
    REQUIRE(ended.size() == 2);
    for (const Ended& e : ended) {
      CHECK(e.exit_code != 0);
      // 512 KiB to each of two; 16 KiB have passed.
      CHECK_THAT(e.text, Contains("is stuck in all_to_all_v 3 of group start-up self-test") &&
                             Contains("i32 [262144], rows to members 131072+131072") &&
                             Contains("Nothing has been trained") &&
                             Contains("NCCL_MAX_P2P_NCHANNELS=32"));
    }
    ended_in_time(ended);
  }
}
