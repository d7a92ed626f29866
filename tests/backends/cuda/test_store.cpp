// The store of a job: first its rules without a network, then over TCP between threads.
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <thread>

#include "backends/cuda/job/rendezvous.h"
#include "backends/cuda/job/socket.h"
#include "core/base/error.h"

using namespace moetwin;
using Catch::Matchers::Contains;

namespace {

StoreSettings settings(int64_t world) {
  StoreSettings s;
  s.world = world;
  s.clock = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  return s;
}

Launch launch(int64_t rank, int64_t world, int port = 0) {
  Launch l;
  l.world = world;
  l.rank = rank;
  l.address = "127.0.0.1";
  l.port = port;
  return l;
}

// What each rank's body throws, or nothing. One store for each, over TCP or shared.
std::vector<std::string> with_ranks(int64_t world, bool tcp,
                                    const std::function<void(Store&, int64_t)>& body) {
  std::vector<std::string> thrown(static_cast<size_t>(world));
  std::unique_ptr<StoreServer> server;
  std::unique_ptr<Store> shared;
  if (tcp)
    server = std::make_unique<StoreServer>(launch(0, world), settings(world));
  else
    shared = make_local_store(settings(world));
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < world; ++r)
    threads.emplace_back([&, r] {
      try {
        std::unique_ptr<Store> own;
        if (tcp) own = connect_store(launch(r, world, server->port()), 10, false);
        Store& store = tcp ? *own : *shared;
        body(store, r);
        store.goodbye(r);
      } catch (const Error& error) {
        thrown[static_cast<size_t>(r)] = std::to_string(error.exit_code()) + ": " + error.what();
      }
    });
  for (std::thread& t : threads) t.join();
  return thrown;
}

const std::vector<int64_t> kFour = {0, 1, 2, 3};

}  // namespace

TEST_CASE("values are waited for, gathers return in the order of members") {
  for (const bool tcp : {false, true}) {
    std::atomic<int> right = 0;
    const auto thrown = with_ranks(4, tcp, [&](Store& store, int64_t rank) {
      if (rank == 2) store.set("id", std::string("a\0b", 3));
      right += store.get("id", 10) == std::string("a\0b", 3);
      for (int round = 0; round < 3; ++round) {
        const std::string mine(static_cast<size_t>(rank * 100'000), static_cast<char>('a' + round));
        const auto all =
            store.gather("round " + std::to_string(round), rank, {3, 1, 0, 2}, mine, 10);
        right += all.size() == 4 && all[0].size() == 300'000 && all[1].size() == 100'000 &&
                 all[2].empty() && all[3].size() == 200'000 && all[3][0] == 'a' + round;
      }
    });
    for (const std::string& t : thrown) CHECK(t == "");
    CHECK(right == 4 * 4);
  }
}

TEST_CASE("who has not come to a gather is named") {
  const auto thrown = with_ranks(4, true, [&](Store& store, int64_t rank) {
    const auto wait = [] { std::this_thread::sleep_for(std::chrono::milliseconds(900)); };
    if (rank % 2 == 1) return wait();
    try {
      store.gather("start", rank, kFour, "", 0.3);
    } catch (const Error&) {
      wait();  // its connection stays until the other has its answer
      throw;
    }
  });
  for (size_t r : {0U, 2U})
    CHECK_THAT(thrown[r], Contains("4: start") && Contains("ranks 1 and 3 of 4 have not come"));
}

TEST_CASE("the first failure ends all that wait, on every rank", "[P041]") {
  for (const bool tcp : {false, true}) {
    const auto thrown = with_ranks(4, tcp, [&](Store& store, int64_t rank) {
      if (rank == 3) {
        store.fail({ErrorClass::non_finite, "rank 3: NaN in layer 1"});
        const Failure second = store.fail({ErrorClass::fault, "something later"});
        CHECK(second.message == "rank 3: NaN in layer 1");
        second.raise();
      }
      store.get("never", 20);
    });
    for (const std::string& t : thrown) CHECK(t == "6: rank 3: NaN in layer 1");
  }
}

TEST_CASE("a process that ends without goodbye fails the job and is named") {
  const auto thrown = with_ranks(4, true, [&](Store& store, int64_t rank) {
    if (rank == 1) throw Error(ErrorClass::stopped, "dies");  // its connection closes
    store.get("never", 20);
  });
  CHECK_THAT(thrown[0], Contains("4: rank 1 (pid") && Contains("is gone"));
}

TEST_CASE("calls that differ are named before data moves", "[P032][P036]") {
  const auto thrown = with_ranks(4, true, [&](Store& store, int64_t rank) {
    store.compare("call 1 of group world", rank, kFour, "all_reduce(sum of 8 x fp32)", 10);
    store.compare("call 2 of group world", rank, kFour,
                  rank == 2 ? "all_reduce(sum of 4 x fp32)" : "all_reduce(sum of 8 x fp32)", 10);
  });
  for (const std::string& t : thrown)
    CHECK_THAT(t, Contains("5: ranks ") && Contains("disagree about call 2 of group world") &&
                      Contains("rank 2 calls all_reduce(sum of 4 x fp32)"));
}

TEST_CASE("two groups in different orders are a circle", "[P036]") {
  for (const bool tcp : {false, true}) {
    const auto thrown = with_ranks(2, tcp, [&](Store& store, int64_t rank) {
      store.compare(rank == 0 ? "call 1 of group A" : "call 1 of group B", rank, {0, 1},
                    rank == 0 ? "all_reduce" : "all_to_all_v", 10);
    });
    for (const std::string& t : thrown)
      CHECK_THAT(
          t, Contains("5: deadlock") &&
                 Contains("rank 0 is at call 1 of group A: all_reduce, and waits for rank 1") &&
                 Contains("rank 1 is at call 1 of group B: all_to_all_v, and waits for rank 0"));
  }
}

TEST_CASE("a pair is compared without waiting") {
  const auto thrown = with_ranks(2, true, [&](Store& store, int64_t rank) {
    store.compare_pair("send 1 from 0 to 1", rank, "64 x bf16");
    store.compare_pair("send 2 from 0 to 1", rank, rank == 0 ? "64 x bf16" : "64 x fp32");
    store.get("never", 10);
  });
  for (const std::string& t : thrown)
    CHECK_THAT(t, Contains("disagree about send 2 from 0 to 1") && Contains("64 x fp32"));
}

TEST_CASE("states tell what each rank last said; posts arrive in order") {
  std::string posted;
  StoreSettings s = settings(2);
  s.on_post = [&](const std::string& bytes) { posted += bytes; };
  const auto store = make_local_store(s);
  CHECK_FALSE(store->beat(1, "busy"));
  store->post("ab");
  store->post("c");
  CHECK(posted == "abc");
  const auto states = store->states();
  REQUIRE(states.size() == 2);
  CHECK(states[0].status == "");
  CHECK(states[1].status == "busy");
  CHECK(states[1].age >= 0);
  store->fail({ErrorClass::fault, "x"});
  CHECK(store->beat(0, "")->message == "x");
}

TEST_CASE("two processes with one rank, two jobs at one port, a stranger, nobody") {
  StoreServer server(launch(0, 2), settings(2));
  Launch first = launch(0, 2, server.port());
  const auto store = connect_store(first, 5, false);
  CHECK_THROWS_WITH(connect_store(first, 5, false), Contains("two processes have rank 0: pid"));
  Launch other = launch(1, 2, server.port());
  other.job = "another";
  CHECK_THROWS_WITH(connect_store(other, 0.2, false), Contains("another job"));
  Launch wide = launch(1, 3, server.port());
  CHECK_THROWS_WITH(connect_store(wide, 5, false), Contains("a world of 3, rank 0 in one of 2"));

  std::string error;
  const Socket stranger = listen_at(0, error);  // takes connections and says nothing
  const int port = port_of(stranger);
  CHECK_THROWS_WITH(connect_store(launch(1, 2, port), 0.1, false), Contains("does not answer"));
  CHECK_THROWS_WITH(
      StoreServer(launch(0, 2, port), settings(2)),
      Contains("cannot listen at port " + std::to_string(port)) && Contains("Choose another port"));
  CHECK_THROWS_WITH(
      connect_store(launch(1, 2, 1), 0.1, false),
      Contains("rank 1 could not reach rank 0 at 127.0.0.1:1") && Contains("MASTER_ADDR"));
  store->goodbye(0);
}

TEST_CASE("after torchrun the store is found behind the agent's port") {
  std::string error;
  const Socket agent = listen_at(0, error);
  Launch l = launch(0, 1, port_of(agent));
  l.more_ports = 16;
  StoreServer server(l, settings(1));
  CHECK(server.port() > l.port);
  const auto store = connect_store(l, 10, false);
  store->set("a", "b");
  CHECK(store->get("a", 1) == "b");
  store->goodbye(0);
}
