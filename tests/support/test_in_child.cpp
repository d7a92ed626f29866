#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <future>
#include <thread>

#include "core/base/error.h"
#include "tests/support/in_child.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Matchers::Contains;

TEST_CASE("in_child returns values, vectors and strings with any byte") {
  CHECK(in_child([] { return 2.5; }) == 2.5);
  CHECK(in_child([] { return std::vector<int>{3, -1, 4}; }) == std::vector<int>{3, -1, 4});
  CHECK(in_child([] { return std::vector<int>{}; }).empty());
  const std::string bytes("a\0b\xff", 4);
  CHECK(in_child([&] { return bytes; }) == bytes);
  const std::string large(10'000'000, 'x');
  CHECK(in_child([&] { return large; }) == large);
}

TEST_CASE("what the body changes stays in the child") {
  int here = 1;
  const pid_t child = in_child([&] { return here = 2, getpid(); });
  CHECK(here == 1);
  CHECK(child != getpid());
  in_child([] { std::thread([] {}).join(); });  // threads are free to live in there
}

TEST_CASE("errors of the body keep class and message") {
  try {
    in_child([]() -> int { throw Error(ErrorClass::deadlock, "rank 3 waits"); });
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::deadlock);
    CHECK(std::string(error.what()) == "rank 3 waits");
  }
  CHECK_THROWS_WITH(in_child([] { throw std::out_of_range("index 9"); }), "index 9");
  CHECK_THROWS_WITH(in_child([] { throw 3; }), Contains("no std::exception"));
}

TEST_CASE("a death by signal or exit is told apart") {
  try {
    in_child([] { raise(SIGKILL); });
    FAIL("nothing was thrown");
  } catch (const ChildDied& died) {
    CHECK(died.signal_number == SIGKILL);
  }
  try {
    in_child([] { _exit(5); });
    FAIL("nothing was thrown");
  } catch (const ChildDied& died) {
    CHECK(died.signal_number == 0);
    CHECK(died.exit_code == 5);
  }
  CHECK_THROWS_AS(in_child([] { _exit(0); }), ChildDied);  // no result is no success
}

TEST_CASE("a child that hangs is killed at the time-out") {
  ChildLimits limits;
  limits.timeout = std::chrono::milliseconds(50);
  CHECK_THROWS_AS(in_child(
                      [] {
                        for (;;) pause();
                      },
                      limits),
                  ChildTimedOut);
}

TEST_CASE("a result beyond the limit and a process with threads are refused") {
  ChildLimits limits;
  limits.result_bytes = 4;
  CHECK(in_child([] { return std::string("four"); }, limits) == "four");
  CHECK_THROWS_AS(in_child([] { return std::string("fives"); }, limits), std::length_error);
  std::promise<void> end;
  std::thread other([&] { end.get_future().wait(); });
  CHECK_THROWS_AS(in_child([] {}), std::logic_error);
  end.set_value();
  other.join();
}

TEST_CASE("an assertion that fails in the body fails out here") {
  CHECK_THROWS_WITH(in_child([] { CHECK(1 == 2); }), Contains("assertion inside the body"));
  CHECK_THROWS_WITH(in_child([] { REQUIRE(1 == 2); }), Contains("assertion inside the body"));
}
