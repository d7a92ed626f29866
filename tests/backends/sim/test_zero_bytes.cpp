// Exchanges in which some or all ranks send or receive nothing: all take part, all end.

#include <catch2/catch.hpp>
#include <numeric>

#include "tests/backends/sim/sim_case.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

constexpr int64_t kRanks = 4, kRounds = 5000;

/// Rows from i to j in a round: a zero row, a zero column, nothing at all, in turns.
int64_t rows(int64_t round, int64_t i, int64_t j) {
  const int64_t some = 1 + (i + 2 * j) % 3, quiet = round / 3 % kRanks;
  switch (round % 3) {
    case 0:
      return i == quiet ? 0 : some;
    case 1:
      return j == quiet ? 0 : some;
    default:
      return 0;
  }
}

HostSizes share(std::vector<int64_t> values) {
  return std::make_shared<const std::vector<int64_t>>(std::move(values));
}

struct Exchange {
  HostSizes send, send_begin, receive, receive_begin;
  int64_t sent = 0, received = 0;
};
Exchange exchange(int64_t round, int64_t rank) {
  std::vector<int64_t> to, to_begin, from, from_begin;
  Exchange e;
  for (int64_t r = 0; r < kRanks; ++r) {
    to.push_back(rows(round, rank, r));
    from.push_back(rows(round, r, rank));
    to_begin.push_back(e.sent);
    from_begin.push_back(e.received);
    e.sent += to.back(), e.received += from.back();
  }
  e.send = share(to), e.send_begin = share(to_begin);
  e.receive = share(from), e.receive_begin = share(from_begin);
  return e;
}

}  // namespace

TEST_CASE("zero rows, zero columns and the empty exchange, five thousand rounds", "[P030]") {
  Case c;
  c.scenario = toy_scenario(kRanks);
  const auto failures = c.numbers([](Backend& device) {
    Allocator memory(device, true);
    const Stream s = device.stream("comm");
    const auto world = device.communicator(all_ranks(device), "world");
    const int64_t me = device.properties().rank;
    double wrong = 0;
    for (int64_t round = 0; round < kRounds; ++round) {
      const Exchange e = exchange(round, me);
      const Tensor out = memory.allocate({e.sent, 2}, DType::f32, MemoryClass::workspace, "out");
      const Tensor in = memory.allocate({e.received, 2}, DType::f32, MemoryClass::workspace, "in");
      device.launch(count_up(out, static_cast<double>(1000 * me)), s);
      world->all_to_all_v(out, in, e.send, e.send_begin, e.receive, e.receive_begin, s, "dispatch");
      if (round % 50 > 2) continue;  // what arrived, in three rounds of fifty
      const std::vector<float> got = values_of(device, in, s);
      size_t at = 0;
      for (int64_t from = 0; from < kRanks; ++from) {
        const Exchange theirs = exchange(round, from);
        for (int64_t i = 0; i < 2 * rows(round, from, me); ++i)
          wrong +=
              got[at++] != static_cast<float>(
                               1000 * from + 2 * (*theirs.send_begin)[static_cast<size_t>(me)] + i);
      }
      wrong += at != got.size();
    }
    device.synchronize(s);
    // Every round, the empty ones too, is one collective on each rank.
    int64_t calls = 0;
    for (const Traffic& t : device.take_profile(false).traffic) calls += t.calls;
    return wrong + (calls != kRounds) + (world->calls() != kRounds);
  });
  for (const double f : failures) CHECK(f == 0);
}
