#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "core/base/error.h"
#include "core/moe/workload.h"

using namespace moetwin;
using Catch::Contains;

namespace {

using Counts = std::vector<int64_t>;

/// A layout in which the same workload is asked for again and again.
struct Asked {
  RoutingConfig routing;
  int64_t sources = 4, tokens = 120, top_k = 2, experts = 8, columns = 4, layer = 3;
  uint64_t seed = 11;

  explicit Asked(const std::string& source) { routing.source = source; }
  Counts counts(int64_t step, int64_t source = 0) const {
    return scripted_counts(routing, seed, step, layer, source, sources, tokens, top_k, experts,
                           columns);
  }
  Counts over_sources(int64_t step) const {
    Counts sum(static_cast<size_t>(experts));
    for (int64_t s = 0; s < sources; ++s) {
      const Counts counts_of = counts(step, s);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += counts_of[i];
    }
    return sum;
  }
};

int64_t sum(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

/// Experts with more than the mean.
std::vector<int64_t> hot(const Counts& counts) {
  std::vector<int64_t> experts;
  for (size_t i = 0; i < counts.size(); ++i)
    if (counts[i] * static_cast<int64_t>(counts.size()) > sum(counts))
      experts.push_back(static_cast<int64_t>(i));
  return experts;
}

}  // namespace

TEST_CASE("every workload: whole numbers that sum to k T, none above T, a function of its place") {
  for (const char* name : {"uniform", "W0", "W1", "W2", "W3", "W5", "W6", "W7", "W8", "W9", "W11"})
    for (int64_t tokens : {0, 1, 3, 17, 120, 1000})
      for (int64_t top_k : {1, 2, 4})
        for (int64_t experts : {4, 6, 8, 64})
          for (int64_t columns : {1, 2})
            for (int64_t step : {1, 2, 19, 20, 21, 22}) {
              Asked asked(name);
              asked.tokens = tokens, asked.top_k = top_k, asked.experts = experts;
              asked.columns = columns;
              asked.routing.workload.hot_experts = 3;
              asked.routing.workload.zero_experts = std::min<int64_t>(2, experts - top_k);
              asked.routing.workload.max_violation =
                  std::min(1.0, static_cast<double>(experts) / static_cast<double>(top_k) - 1);
              for (int64_t source : {0, 3}) {
                const Counts counts = asked.counts(step, source);
                INFO(name << " T " << tokens << " k " << top_k << " E " << experts);
                REQUIRE(static_cast<int64_t>(counts.size()) == experts);
                REQUIRE(sum(counts) == top_k * tokens);
                REQUIRE(*std::max_element(counts.begin(), counts.end()) <= tokens);
                REQUIRE(*std::min_element(counts.begin(), counts.end()) >= 0);
                REQUIRE(asked.counts(step, source) == counts);
              }
            }
}

TEST_CASE("uniform: what is left over goes round, so that sums over sources differ by at most 1") {
  for (int64_t tokens : {1, 5, 7, 13, 100})
    for (int64_t sources : {1, 2, 3, 8, 24}) {
      Asked asked("uniform");
      asked.tokens = tokens, asked.sources = sources, asked.top_k = 1;
      const Counts all = asked.over_sources(1);
      const auto [low, high] = std::minmax_element(all.begin(), all.end());
      INFO("T " << tokens << " sources " << sources);
      CHECK(*high - *low <= 1);
      for (int64_t s = 0; s < sources; ++s)
        for (int64_t n : asked.counts(1, s)) CHECK((n == tokens / 8 || n == tokens / 8 + 1));
    }
  // 5 tokens over 4 experts: source r gives its one extra to expert r.
  Asked asked("W0");
  asked.tokens = 5, asked.top_k = 1, asked.experts = 4;
  CHECK(asked.counts(1, 0) == Counts{2, 1, 1, 1});
  CHECK(asked.counts(1, 1) == Counts{1, 2, 1, 1});
  CHECK(asked.counts(1, 3) == Counts{1, 1, 1, 2});
}

TEST_CASE("W1 and W3: the same heat, side by side or spread over the columns") {
  for (uint64_t seed : {1, 2, 3, 4, 5}) {
    Asked set("W1"), spread("W3");
    set.seed = spread.seed = seed;
    for (Asked* asked : {&set, &spread}) {
      asked->routing.workload.hot_experts = 3;
      asked->routing.workload.hot_fraction = 0.75;
    }
    // 240 assignments: 180 on three, 60 each; 60 on five, 12 each.
    for (const Asked* asked : {&set, &spread}) {
      Counts counts = asked->counts(1);
      CHECK(hot(counts).size() == 3);
      std::sort(counts.begin(), counts.end());
      CHECK(counts == Counts{12, 12, 12, 12, 12, 60, 60, 60});
    }
    std::vector<int64_t> columns;
    for (int64_t e : hot(spread.counts(1))) columns.push_back(e / 2);
    std::sort(columns.begin(), columns.end());
    CHECK(std::unique(columns.begin(), columns.end()) == columns.end());
    const std::vector<int64_t> three = hot(set.counts(1));
    const bool together = (three[2] - three[0] == 2) || (three[0] == 0 && three[2] == 7);
    CHECK(together);
  }
}

TEST_CASE("W2 and W11: one rank is hot; in W11 the other tokens go to all experts") {
  Asked all_hot("W2"), token_hot("W11");
  for (Asked* asked : {&all_hot, &token_hot}) {
    asked->routing.workload.hot_rank = 2;
    asked->routing.workload.hot_fraction = 0.5;
  }
  // 240 assignments. W2: 120 on experts 4 and 5, 20 on each of six.
  CHECK(all_hot.counts(1) == Counts{20, 20, 20, 20, 60, 60, 20, 20});
  // W11: 120 + a quarter of the other 120 on column 2 = 150; 15 on each of six.
  CHECK(token_hot.counts(1) == Counts{15, 15, 15, 15, 75, 75, 15, 15});
  // hot_rank 6 of 8 EP ranks over 4 columns is column 2 again.
  all_hot.routing.workload.hot_rank = 6;
  CHECK(all_hot.counts(1) == Counts{20, 20, 20, 20, 60, 60, 20, 20});
}

TEST_CASE("a share above the cap goes to the others in proportion") {
  Asked asked("W2");
  asked.routing.workload.hot_fraction = 1;
  // Two hot experts take every token once; with k = 2 that is all there is.
  CHECK(asked.counts(1) == Counts{120, 120, 0, 0, 0, 0, 0, 0});
  asked.top_k = 4;  // 480 assignments: 240 fit, 240 go to the six others, whose weights are zero
  CHECK(asked.counts(1) == Counts{120, 120, 40, 40, 40, 40, 40, 40});
  CHECK(apportion({8, 2, 1, 1}, 12, 4) == Counts{4, 4, 2, 2});  // 8, then 8:2:1:1 of 8 is 4, 2, 2
  CHECK(apportion({1, 1, 1}, 7, 3, 2) == Counts{2, 2, 3});
  CHECK(apportion({0, 0}, 3, 2) == Counts{2, 1});
}

TEST_CASE("W4: the first source routes all its tokens, the last a ragged_ratio-th") {
  Asked asked("W4");
  asked.routing.workload.ragged_ratio = 4;
  // Shares 1, 3/4, 1/2, 1/4 of 120 tokens, times k = 2.
  for (int64_t r = 0; r < 4; ++r) {
    CHECK(sum(asked.counts(1, r)) == 240 - 60 * r);
    CHECK(scripted_tokens(asked.routing, r, 4, 120) == 120 - 30 * r);
  }
  CHECK(asked.over_sources(1) == Counts(8, 75));  // 600 over 8
  asked.sources = 1;
  CHECK(sum(asked.counts(1, 0)) == 240);
}

TEST_CASE("W5: the last experts get nothing, so may a whole rank") {
  Asked asked("W5");
  asked.routing.workload.zero_experts = 2;  // all of column 3
  CHECK(asked.counts(1) == Counts{40, 40, 40, 40, 40, 40, 0, 0});
  asked.routing.workload.zero_experts = 7;
  CHECK_THROWS_WITH(asked.counts(1), Contains("zero_experts") && Contains("0 to 6"));
}

TEST_CASE("W6: the hot set moves on by its size every period and comes round") {
  Asked asked("W6");
  asked.routing.workload.hot_experts = 2;
  asked.routing.workload.period_steps = 3;
  for (int64_t step = 1; step <= 30; ++step) {
    const int64_t first = ((step - 1) / 3) * 2 % 8;
    CHECK(hot(asked.counts(step)) == std::vector<int64_t>{first, first + 1});
  }
}

TEST_CASE("W7: bursts of burst_steps every period_steps, balanced between") {
  Asked asked("W7");
  asked.routing.workload.period_steps = 5;
  asked.routing.workload.burst_steps = 2;
  const Counts balanced(8, 30);
  for (int64_t step = 1; step <= 20; ++step) {
    const bool burst = (step - 1) % 5 < 2;
    CHECK((asked.counts(step) == balanced) != burst);
    if (burst) CHECK(hot(asked.counts(step)).size() == 1);
  }
}

TEST_CASE("W8: log-normal loads with the asked MaxVio, within rounding") {
  for (uint64_t seed : {1, 2, 3})
    for (int64_t experts : {8, 64})
      for (double target : {0.0, 0.25, 1.0, 3.0}) {
        Asked asked("W8");
        asked.seed = seed, asked.experts = experts, asked.tokens = 100000;
        asked.routing.workload.max_violation = target;
        const Counts counts = asked.counts(1);
        const double mean = 200000.0 / static_cast<double>(experts);
        const auto most = static_cast<double>(*std::max_element(counts.begin(), counts.end()));
        CHECK(std::abs(most - (1 + target) * mean) <= 1);
        CHECK(asked.counts(9) == counts);  // skew is of the layer, not of the step
        if (target > 0) {
          asked.layer = 4;
          CHECK(asked.counts(1) != counts);
        }
      }
  Asked asked("W8");
  asked.routing.workload.max_violation = 3.5;  // 8 / 2 - 1 = 3 is the most there is
  CHECK_THROWS_WITH(asked.counts(1), Contains("max_violation") && Contains("0 to 3"));
}

TEST_CASE("W9: period and amplitude are exact") {
  Asked asked("W9");
  asked.routing.workload.period_steps = 12;
  asked.routing.workload.amplitude = 0.5;
  // Mean 30: even experts 30 + 15 cos, odd ones 30 - 15 cos; cos(2 pi / 6) = 1/2.
  const Counts peak{45, 15, 45, 15, 45, 15, 45, 15}, flat(8, 30);
  const Counts trough{15, 45, 15, 45, 15, 45, 15, 45};
  CHECK(asked.counts(1) == peak);
  CHECK(asked.counts(4) == flat);
  CHECK(asked.counts(7) == trough);
  CHECK(asked.counts(10) == flat);
  for (int64_t step = 1; step <= 24; ++step) CHECK(asked.counts(step + 12) == asked.counts(step));
  // 30 + 7.5: halves go to the lower experts first, so the sum stays exact.
  CHECK(asked.counts(3) == Counts{38, 23, 38, 23, 37, 22, 37, 22});
  asked.experts = 5, asked.columns = 1, asked.tokens = 75;  // mean 30, the fifth stands still
  CHECK(asked.counts(1) == Counts{45, 15, 45, 15, 30});
}

TEST_CASE("an unknown workload is refused with the legal ones") {
  CHECK_THROWS_WITH(Asked("W12").counts(1), Contains("\"W12\"") && Contains("W0 to W11"));
}
