// Plans of rebalancing: every row is worked on once, where its expert is, and loads become what
// each policy promises.

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <random>

#include "core/moe/rebalancing/placement.h"
#include "core/moe/rebalancing/policy.h"

using namespace moetwin;

namespace {

GroupCounts counts_of(int64_t ranks, int64_t experts, int64_t chunks,
                      const std::function<int64_t(int64_t, int64_t, int64_t)>& rows) {
  GroupCounts counts{ranks, experts, chunks, {}};
  for (int64_t s = 0; s < ranks; ++s)
    for (int64_t e = 0; e < experts; ++e)
      for (int64_t c = 0; c < chunks; ++c) counts.rows.push_back(rows(s, e, c));
  return counts;
}

/// 4 ranks of 2 experts; expert 2 has 10 times the rows of the others.
GroupCounts one_hot() {
  return counts_of(4, 8, 1, [](int64_t, int64_t e, int64_t) { return e == 2 ? 1000 : 100; });
}

/// Rows that each rank works on; checks that all are there.
std::vector<int64_t> worked(const ExpertPlan& plan, const GroupCounts& counts) {
  std::vector<int64_t> by_rank(static_cast<size_t>(counts.ranks), 0);
  std::map<std::tuple<int64_t, int64_t, int64_t>, int64_t> seen;
  for (int64_t c = 0; c < counts.chunks; ++c)
    cut_rows(plan, counts, c, [&](const RowCut& cut) {
      CHECK(cut.rows > 0);
      by_rank[static_cast<size_t>(cut.rank)] += cut.rows;
      seen[{cut.source, cut.expert, c}] += cut.rows;
      CHECK(plan.slot(counts, cut.rank, cut.expert) < plan.slots(counts, cut.rank));
    });
  for (int64_t s = 0; s < counts.ranks; ++s)
    for (int64_t e = 0; e < counts.experts; ++e)
      for (int64_t c = 0; c < counts.chunks; ++c) CHECK((seen[{s, e, c}]) == counts.at(s, e, c));
  return by_rank;
}

RebalancingSetup setup(const std::string& kind) {
  RebalancingSetup s;
  s.config.kind = kind;
  s.config.min_tokens = 1;
  s.row_bytes = 2048;
  s.row_flop = 1e7;
  s.expert_bytes = 1e6;
  return s;
}

}  // namespace

TEST_CASE("plans: nothing moves") {
  const GroupCounts counts = one_hot();
  const ExpertPlan plan = ExpertPlan::nothing(counts);
  CHECK(!plan.moves());
  CHECK(worked(plan, counts) == std::vector<int64_t>{800, 4400, 800, 800});
}

TEST_CASE("replication: replicas follow the interval before") {
  RebalancingSetup s = setup("replication");
  s.config.interval_steps = 2;
  s.config.redundant_experts = 4;
  const auto policy = make_policy(s);
  const GroupCounts counts = one_hot();
  for (const int64_t step : {1, 1, 2, 2}) CHECK(!policy->plan(counts, step).moves());
  const ExpertPlan plan = policy->plan(counts, 3);
  CHECK(plan.for_the_step);
  // 4,000 rows of expert 2 become 4 x 1,000 on all ranks; the fourth replica is of one of the
  // others, whose 400 become 2 x 200, on the only rank left with room: that of expert 2.
  for (const int64_t r : {0, 2, 3}) CHECK(plan.guests[static_cast<size_t>(r)].front() == 2);
  CHECK(plan.guests[1].size() == 1);
  const std::vector<int64_t> rows = worked(plan, counts);
  CHECK(*std::max_element(rows.begin(), rows.end()) == 1800);
  // The same replicas until the interval is over, whatever comes.
  const GroupCounts other =
      counts_of(4, 8, 1, [](int64_t, int64_t e, int64_t) { return e == 7 ? 700 : 10; });
  CHECK(policy->plan(other, 4).guests == plan.guests);
  CHECK(policy->plan(other, 5).guests != plan.guests);
}

TEST_CASE("shadowing: the hot expert goes everywhere where that is worth it") {
  RebalancingSetup s = setup("shadowing");
  const GroupCounts counts = one_hot();
  s.config.network_bytes_per_second = 1e12;
  s.config.flop_per_second = 1e13;
  // 3 x 4,400 x 1e7 / 1e13 = 13 ms, with expert 2 shadowed 3 x 1,800 x ... = 5.4 ms: the exchange
  // and two megabytes at 1 TB/s are microseconds.
  const ExpertPlan plan = make_policy(s)->plan(counts, 1);
  CHECK(plan.shadowed[2]);
  CHECK(plan.everywhere());
  CHECK(!plan.for_the_step);
  const std::vector<int64_t> rows = worked(plan, counts);
  CHECK(rows == std::vector<int64_t>{1800, 1400, 1800, 1800});
  for (const int64_t r : {0, 2, 3})
    CHECK(plan.guests[static_cast<size_t>(r)] == std::vector<int64_t>{2});
  // A network of 1 MB/s: no weights are worth 2 s.
  s.config.network_bytes_per_second = 1e6;
  s.row_bytes = 0;
  CHECK(!make_policy(s)->plan(counts, 1).moves());
}

TEST_CASE("spill: no rank above its share where pieces are large enough") {
  RebalancingSetup s = setup("spill");
  std::mt19937 random(3);
  std::lognormal_distribution<double> load(5, 1.3);
  for (int round = 0; round < 20; ++round) {
    const GroupCounts counts = counts_of(8, 32, 1 + round % 3, [&](int64_t, int64_t, int64_t) {
      return static_cast<int64_t>(load(random));
    });
    const ExpertPlan plan = make_policy(s)->plan(counts, 1);
    const std::vector<int64_t> before = counts.at_home(), after = worked(plan, counts);
    const int64_t all = std::accumulate(before.begin(), before.end(), int64_t{0});
    const double mean = static_cast<double>(all) / 8;
    if (static_cast<double>(*std::max_element(before.begin(), before.end())) <= 1.3 * mean) {
      CHECK(!plan.moves());
    } else {
      CHECK(static_cast<double>(*std::max_element(after.begin(), after.end())) <= mean + 1);
    }
  }
}

TEST_CASE("spill: what is too little stays") {
  RebalancingSetup s = setup("spill");
  s.config.min_tokens = 5000;
  CHECK(!make_policy(s)->plan(one_hot(), 1).moves());
  s.config.min_tokens = 800;
  // Mean 1,700: rank 1 keeps 1,700 - 400 of expert 2, and 2,700 go in pieces of at most 900.
  const GroupCounts counts = one_hot();
  const ExpertPlan plan = make_policy(s)->plan(counts, 1);
  CHECK(worked(plan, counts) == std::vector<int64_t>{1700, 1700, 1700, 1700});
  s.config.imbalance_threshold = 3;
  CHECK(!make_policy(s)->plan(counts, 1).moves());  // 4,400 is 2.6 times the mean
}

TEST_CASE("placement: experts are packed anew where that is more even") {
  // Ranks of 10 + 8 and 1 + 1. From heavy to light to the lighter rank with room: 10 | 8, then 1 to
  // the second and 1 to the first: 11 and 9. Experts 0 and 2 stay where they are.
  const std::vector<double> loads{10, 8, 1, 1};
  const ExpertPlaces now = first_places(4);
  CHECK(choose_places(loads, now, {2, 1, 1, 1.3}) == ExpertPlaces{0, 3, 2, 1});
  // Nothing better: as it is.
  CHECK(choose_places(loads, {0, 3, 2, 1}, {2, 1, 1, 1}) == ExpertPlaces{0, 3, 2, 1});
  // 18 is 1.8 times the mean.
  CHECK(choose_places(loads, now, {2, 1, 1, 1.9}) == now);
}

TEST_CASE("placement: counts by place") {
  const GroupCounts counts =
      counts_of(2, 4, 2, [](int64_t s, int64_t e, int64_t c) { return 100 * s + 10 * e + c; });
  const GroupCounts moved = counts.by_place({0, 3, 2, 1});
  CHECK(moved.at(1, 3, 1) == 111);  // expert 1
  CHECK(moved.at(0, 1, 0) == 30);   // expert 3
  CHECK(moved.of(2) == counts.of(2));
  // Ranks have experts 0 and 3, 2 and 1.
  CHECK(moved.at_home() ==
        std::vector<int64_t>{counts.of(0) + counts.of(3), counts.of(1) + counts.of(2)});
}
