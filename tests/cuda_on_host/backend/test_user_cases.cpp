// Troubles that users of other frameworks met with collectives that do not match, on both machines.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "core/moe/experts.h"
#include "core/moe/layer.h"
#include "tests/cuda_on_host/backend/training.h"
#include "tests/support/rank_case.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

constexpr int64_t kHidden = 32, kExperts = 4;

struct Machine {
  const char* name;
  MakeCluster make;
};
const std::vector<Machine>& machines() {
  static const std::vector<Machine> both{{"modelled", modelled_gpus}, {"emulated", emulated_gpus}};
  return both;
}

Scenario scenario_of(int64_t dp, int64_t ep) {
  Scenario s = layer_scenario(dp, ep, kExperts, 1);
  s.model_config.hidden_size = kHidden;
  s.training_config.dtype = "fp32";
  s.distributed_config.timeout_seconds = 20;
  return s;
}

/// Feature e of a token says how much expert e wants it.
std::unique_ptr<MoeLayer> layer_of(RankCase& at) {
  auto router = make_router(at.parameters, at.router_setup());
  auto experts = std::make_unique<GroupedExperts>(at.parameters, at.scenario.model_config, at.grid,
                                                  at.at, "experts", 0.3, 1);
  auto layer = std::make_unique<MoeLayer>(std::move(router), at.dispatcher(), std::move(experts),
                                          std::vector<MoeLayer::Beside>(), 1);
  at.start();
  std::vector<double> w(kHidden * kExperts, 0.0);
  for (size_t e = 0; e < kExperts; ++e) w[e * kExperts + e] = 1;
  at.write(at.parameter("layers.0.moe.router.weight").value, w);
  return layer;
}

/// One token for each expert named.
std::vector<double> tokens_for(const std::vector<int64_t>& experts, uint64_t seed) {
  std::vector<double> x = draws(static_cast<int64_t>(experts.size()) * kHidden, seed);
  for (size_t t = 0; t < experts.size(); ++t)
    for (size_t e = 0; e < kExperts; ++e)
      x[t * kHidden + e] = static_cast<int64_t>(e) == experts[t] ? 8 : 0.5 * x[t * kHidden + e];
  return x;
}

}  // namespace

TEST_CASE("ranks whose fullest experts hold 3 and 4 tokens, without dropping", "[P032]") {
  // Six tokens a rank: 3 + 2 + 1 + 0 and 4 + 1 + 0 + 1.
  const std::vector<int64_t> wanted[] = {{0, 1, 0, 2, 1, 0}, {2, 2, 0, 2, 3, 2}};
  std::vector<double> x[2], all;
  for (size_t r = 0; r < 2; ++r) {
    x[r] = tokens_for(wanted[r], 5 + r);
    all.insert(all.end(), x[r].begin(), x[r].end());
  }
  for (const Machine& machine : machines()) {
    INFO(machine.name);
    const auto layer_on = [&](int64_t ep) {
      return on_ranks(
          scenario_of(1, ep),
          [&, ep](RankCase& at) {
            const auto layer = layer_of(at);
            const std::vector<double>& mine = ep == 1 ? all : x[static_cast<size_t>(at.rank)];
            const auto tokens = static_cast<int64_t>(mine.size()) / kHidden;
            MoeLayer::Saved saved;
            const Tensor y = layer->forward(at.context, RankCase::batch(at.rank * 6, tokens, 12),
                                            at.upload({tokens, kHidden}, mine), saved);
            return Lists{at.download(y), at.download(saved.routing.counts)};
          },
          machine.make);
    };
    const auto one = layer_on(1), two = layer_on(2);
    CHECK(two[0][1] == std::vector<double>{3, 2, 1, 0, 0});
    CHECK(two[1][1] == std::vector<double>{1, 0, 4, 1, 0});
    std::vector<double> y = two[0][0];
    y.insert(y.end(), two[1][0].begin(), two[1][0].end());
    REQUIRE(y.size() == one[0][0].size());
    double worst = 0, largest = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      worst = std::max(worst, std::abs(y[i] - one[0][0][i]));
      largest = std::max(largest, std::abs(y[i]));
    }
    CHECK(worst <= 1e-5 * largest);
    CHECK(largest > 0.01);
  }
}

TEST_CASE("without expert parallelism forwards may differ in number", "[P033]") {
  for (const Machine& machine : machines()) {
    INFO(machine.name);
    const auto ranks = on_ranks(
        scenario_of(2, 1),
        [](RankCase& at) {
          const auto layer = layer_of(at);
          at.device.synchronize(at.context.streams.compute);
          at.device.take_profile(true);
          const int64_t forwards = at.rank == 0 ? 3 : 5;
          for (int64_t i = 0; i < forwards; ++i) {
            MoeLayer::Saved saved;
            layer->forward(at.context, RankCase::batch(0, 4, 8),
                           at.upload({4, kHidden}, tokens_for({0, 1, 2, 3}, 9)), saved);
          }
          double selections = 0, collectives = 0;
          const Profile profile = at.device.take_profile(false);
          for (const Interval& i : profile.intervals)
            selections += std::string(i.name) == "router_select";
          for (const Traffic& t : profile.traffic) collectives += static_cast<double>(t.calls);
          return Lists{{selections, collectives}};
        },
        machine.make);
    CHECK(ranks[0][0] == std::vector<double>{3, 0});
    CHECK(ranks[1][0] == std::vector<double>{5, 0});
  }
}

TEST_CASE("two communicators of one name are told apart, alike on both machines", "[names]") {
  for (const Machine& machine : machines()) {
    INFO(machine.name);
    const auto ranks = on_ranks(
        scenario_of(2, 1),
        [](RankCase& at) {
          at.start();
          const Group both{0, 1, 0, 2, 1};
          const Stream stream = at.context.streams.compute;
          const auto first = at.device.communicator(both, "twin"),
                     second = at.device.communicator(both, "twin");
          at.device.synchronize(stream);
          at.device.take_profile(true);
          first->barrier(stream);
          second->barrier(stream);
          at.device.synchronize(stream);
          std::vector<double> found;
          for (const Interval& i : at.device.take_profile(false).intervals) {
            if (std::string(i.group) == "twin") found.push_back(1);
            if (std::string(i.group) == "twin #2") found.push_back(2);
          }
          return Lists{found};
        },
        machine.make);
    for (const auto& of_rank : ranks) CHECK(of_rank[0] == std::vector<double>{1, 2});
  }
}
