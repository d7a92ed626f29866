// MoE layers under TP: a group's tokens are routed alike on all of its ranks, each exchanges its
// slice of them, and experts see every token once, in token order.

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/core/moe/fake_parts.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

constexpr int64_t kHidden = 8;

/// The identity, which keeps what its experts got: expert, then the row, one after another.
class Listening : public ScalingExperts {
 public:
  Listening(RankCase& at, std::vector<double>& heard)
      : ScalingExperts(
            at, std::vector<double>(
                    static_cast<size_t>(at.scenario.model_config.moe_layer_config.num_experts), 1)),
        at_(at),
        heard_(heard) {}
  Tensor forward(Context& context, const Tensor& x, const HostSizes& rows,
                 ExpertsSaved& saved) override {
    const std::vector<double> values = at_.download(x);
    auto row = values.begin();
    for (size_t e = 0; e < rows->size(); ++e)
      for (int64_t i = 0; i < (*rows)[e]; ++i, row += kHidden) {
        heard_.push_back(static_cast<double>(at_.grid.first_expert(at_.at.ep)) +
                         static_cast<double>(e));
        heard_.insert(heard_.end(), row, row + kHidden);
      }
    return ScalingExperts::forward(context, x, rows, saved);
  }

 private:
  RankCase& at_;
  std::vector<double>& heard_;
};

struct Place {
  int64_t world, ep, tp, etp;
  bool sequence;
};

/// Experts of 4, capacity 6 for 12 tokens of which each goes to 2: as in the report.
Scenario scenario_of(const Place& c) {
  Scenario s = layer_scenario(1, 1, 4, 2);
  s.model_config.moe_layer_config.capacity_factor = 1;
  s.model_config.moe_layer_config.drop_policy = "position";
  DistributedConfig& d = s.distributed_config;
  d.world_size = c.world;
  d.expert_parallel_size = c.ep;
  d.tensor_parallel_size = c.tp;
  d.expert_tensor_parallel_size = c.etp;
  d.sequence_parallel = c.sequence;
  d.parallel_folding = true;
  return s;
}

constexpr int64_t kTokens = 12, kChoices = 2;

/// y, dx, and what the experts of every rank got.
std::vector<Lists> run(const Place& c, int64_t chunks) {
  return on_ranks(scenario_of(c), [&](RankCase& at) {
    // The same tokens and choices on the ranks of a TP group, others on other groups. Expert 3 is
    // asked for more than it takes.
    std::vector<double> ids;
    for (int64_t t = 0; t < kTokens; ++t)
      ids.insert(ids.end(), {t % 4 == 0 ? 1.0 : 3.0, static_cast<double>(t % 3)});
    const auto seed = static_cast<uint64_t>(at.at.ddp);
    std::vector<double> heard;
    MoeLayer layer(std::make_unique<ToldRouter>(at, ids, std::vector<double>(ids.size(), 0.5)),
                   at.dispatcher(chunks), std::make_unique<Listening>(at, heard), {}, 1, at.tp);
    at.start();
    const auto x = draws(kTokens * kHidden, 10 + seed), dy = draws(kTokens * kHidden, 20 + seed);
    const auto mine = [&](const std::vector<double>& values) {
      const Tensor all = at.upload({kTokens, kHidden}, values);
      return at.tp.sequence() ? at.tp.slice(all) : all;
    };
    MoeLayer::Saved saved;
    MicroBatch batch = RankCase::batch(0, kTokens, kTokens);
    const Tensor y = layer.forward(at.context, batch, mine(x), saved);
    const Tensor dx = layer.backward(at.context, batch, mine(dy), saved);
    return Lists{at.download(y),
                 at.download(dx),
                 heard,
                 {static_cast<double>(at.at.tp), static_cast<double>(at.at.ddp)}};
  });
}

/// Rows by expert, sorted.
std::vector<std::vector<double>> rows_of(const std::vector<double>& heard) {
  std::vector<std::vector<double>> rows;
  for (size_t i = 0; i < heard.size(); i += kHidden + 1)
    rows.emplace_back(heard.begin() + static_cast<int64_t>(i),
                      heard.begin() + static_cast<int64_t>(i) + kHidden + 1);
  return rows;
}

void check(const Place& c, int64_t chunks) {
  CAPTURE(c.world, c.ep, c.tp, c.etp, c.sequence, chunks);
  const auto whole = run({c.world / c.tp, 1, 1, 1, false}, 1);
  const auto split = run(c, chunks);
  std::vector<std::vector<double>> expected, got;
  for (const Lists& rank : whole)
    for (auto& row : rows_of(rank[2])) expected.push_back(row);
  for (const Lists& rank : split) {
    const auto tp = static_cast<int64_t>(rank[3][0]);
    const Lists& reference = whole[static_cast<size_t>(rank[3][1])];
    for (size_t what : {0, 1}) {
      std::vector<double> want = reference[what];
      if (c.sequence) {
        const int64_t n = kTokens / c.tp * kHidden;
        want = {want.begin() + tp * n, want.begin() + (tp + 1) * n};
      }
      REQUIRE(rank[what].size() == want.size());
      for (size_t i = 0; i < want.size(); ++i)
        CHECK(rank[what][i] == Approx(want[i]).margin(1e-12));
    }
    for (auto& row : rows_of(rank[2])) got.push_back(row);
  }
  // Ranks of an expert-TP group and hidden rows (EP beyond 4) have the same rows, none more than
  // once.
  std::vector<std::vector<double>> copies;
  for (const auto& row : expected)
    for (int64_t q = 0; q < c.etp * std::max<int64_t>(1, c.ep / 4); ++q) copies.push_back(row);
  std::sort(copies.begin(), copies.end());
  std::sort(got.begin(), got.end());
  CHECK(got == copies);
}

}  // namespace

TEST_CASE("experts see every token of a TP group once, whatever splits them", "[P061]") {
  for (const bool sequence : {false, true})
    for (const Place& c : {Place{2, 1, 2, 2, sequence},
                           {2, 1, 2, 1, sequence},
                           {2, 2, 2, 1, sequence},
                           {4, 2, 2, 2, sequence},
                           {4, 4, 4, 1, sequence},
                           {4, 2, 4, 2, sequence},
                           {4, 1, 4, 2, sequence},
                           {8, 4, 2, 2, sequence},
                           {8, 8, 2, 1, sequence}})
      for (const int64_t chunks : {1, 3}) check(c, chunks);
}

TEST_CASE("the rows of an expert are those of one rank, in the same order", "[P061]") {
  const auto whole = run({1, 1, 1, 1, false}, 1), split = run({2, 1, 2, 2, false}, 1);
  for (const Lists& rank : split) CHECK(rank[2] == whole[0][2]);
  // Capacity 6: expert 3 is asked for by nine tokens and sees the first six of them.
  int64_t of_three = 0;
  for (const auto& row : rows_of(whole[0][2])) of_three += row[0] == 3;
  CHECK(of_three == 6);
}
