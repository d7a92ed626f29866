// The probe sees the router alone: the same in every layout, without noise, and nothing of the
// training notices it.

#include <catch2/catch.hpp>
#include <cmath>

#include "core/train/probe.h"
#include "tests/core/train/small_training.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

struct Probed {
  double step, layer, churn, entropy, logit_std, harm;
  std::vector<double> share, bias;
};

/// Every row of probe.csv, in order.
std::vector<Probed> probe_rows(const Scenario& s, TrainResult* whole = nullptr) {
  const auto experts = static_cast<size_t>(s.model_config.moe_layer_config.num_experts);
  const bool bias = s.model_config.moe_layer_config.bias_update_rate > 0;
  TrainRunOptions options;
  options.probe = true;
  options.look_at_row = [](const StepRow& row) {
    std::vector<double> numbers;
    for (const LayerRow& layer : row.layers) {
      if (!layer.probe) continue;
      const ProbeRow& p = *layer.probe;
      for (double v : {static_cast<double>(row.step), static_cast<double>(layer.layer), p.churn,
                       p.router_entropy, p.logit_std, p.harm})
        numbers.push_back(v);
      numbers.insert(numbers.end(), p.share.begin(), p.share.end());
      numbers.insert(numbers.end(), p.bias.begin(), p.bias.end());
    }
    return numbers;
  };
  const TrainResult result = train_in_child(s, options);
  if (whole) *whole = result;
  const size_t width = 6 + experts * (bias ? 2 : 1);
  REQUIRE(result.rows.size() % width == 0);
  std::vector<Probed> rows;
  for (auto at = result.rows.begin(); at != result.rows.end();) {
    Probed p{at[0], at[1], at[2], at[3], at[4], at[5], {}, {}};
    at += 6;
    p.share.assign(at, at + static_cast<std::ptrdiff_t>(experts));
    at += static_cast<std::ptrdiff_t>(experts);
    if (bias) {
      p.bias.assign(at, at + static_cast<std::ptrdiff_t>(experts));
      at += static_cast<std::ptrdiff_t>(experts);
    }
    rows.push_back(p);
  }
  return rows;
}

Scenario one_rank(Scenario s) {
  DistributedConfig& d = s.distributed_config;
  d.world_size = d.data_parallel_size = d.expert_parallel_size = 1;
  d.tensor_parallel_size = d.pipeline_parallel_size = d.virtual_pipeline_size = 1;
  return s;
}

}  // namespace

namespace {

void check_same(const std::vector<Probed>& rows, const std::vector<Probed>& expected) {
  REQUIRE(rows.size() == expected.size());
  double moved = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    const Probed &a = rows[i], &b = expected[i];
    CHECK(a.step == b.step);
    CHECK(a.layer == b.layer);
    CHECK(a.share == b.share);
    if (i < 2)
      CHECK((std::isnan(a.churn) && std::isnan(b.churn)));
    else
      CHECK(a.churn == b.churn);
    CHECK(a.entropy == Approx(b.entropy).epsilon(1e-9));
    CHECK(a.logit_std == Approx(b.logit_std).epsilon(1e-9));
    CHECK(a.harm == b.harm);
    CHECK(a.bias == b.bias);
    CHECK((a.entropy > 0 && a.entropy < 1 && a.harm > 0 && a.harm < 1));
    moved += i < 2 ? 0 : a.churn;
  }
  CHECK(moved > 0);
}

}  // namespace

TEST_CASE("every layout gives the same probe") {
  Scenario s = small_training(2, 2, 4, 2, 12);
  s.training_config.micro_batch_size = 2;
  s.training_config.global_batch_size = 16;
  s.training_config.learning_rate = 2;
  s.routing.noise = {"gaussian", 0.5};
  s.routing.jitter_epsilon = 0.1;
  s.model_config.dropout = 0.1;
  s.model_config.moe_layer_config.bias_update_rate = 0.05;
  // With few places, what experts drop is felt by the layers above.
  s.model_config.moe_layer_config.capacity_factor = 1;
  s.routing.probe.sequences = 7;  // micro-batches of 2, 2, 2 and 1
  const std::vector<Probed> expected = probe_rows(one_rank(s));
  REQUIRE(expected.size() == 24);
  for (const auto& [dp, ep] : std::vector<std::pair<int64_t, int64_t>>{{4, 1}, {1, 4}, {2, 2}}) {
    CAPTURE(dp, ep);
    s.distributed_config.data_parallel_size = dp;
    s.distributed_config.expert_parallel_size = ep;
    check_same(probe_rows(s), expected);
  }
  // Stages and TP ranks, which route alike: the micro-batches are as many and as large.
  struct Split {
    int64_t ep, tp, etp, pp, chunks;
    bool sequence;
  };
  for (const Split& split : {Split{2, 1, 1, 2, 1, false}, Split{1, 1, 1, 2, 2, false},
                             Split{2, 2, 1, 1, 1, false}, Split{1, 2, 2, 2, 1, true}}) {
    CAPTURE(split.ep, split.tp, split.etp, split.pp, split.chunks);
    Scenario of_split = s;
    DistributedConfig& d = of_split.distributed_config;
    d.data_parallel_size = 1;
    d.expert_parallel_size = split.ep;
    d.tensor_parallel_size = split.tp;
    d.expert_tensor_parallel_size = split.etp;
    d.pipeline_parallel_size = split.pp;
    d.virtual_pipeline_size = split.chunks;
    if (split.chunks > 1) {
      d.pipeline_schedule = "interleaved_1f1b";
      d.layers_per_stage = {1, 0, 0, 1};
    }
    d.sequence_parallel = split.sequence;
    d.world_size = split.ep * split.tp * split.pp;
    check_same(probe_rows(of_split), expected);
  }
}

TEST_CASE("without noise the probe of step 1 routes as the training batch does") {
  Scenario s = small_training(2, 1, 4, 1, 1);
  s.training_config.global_batch_size = 8;
  s.routing.probe.sequences = 8;
  TrainResult result;
  const std::vector<Probed> rows = probe_rows(s, &result);
  REQUIRE(rows.size() == 2);
  const double tokens = 8 * 6;
  for (size_t l = 0; l < 2; ++l)
    for (size_t e = 0; e < 4; ++e)
      CHECK(rows[l].share[e] == static_cast<double>(result.counts[0][4 * l + e]) / tokens);
}

TEST_CASE("weights that stay route the probe as ever, whatever the noise") {
  Scenario s = small_training(1, 2, 4, 1, 5);
  s.training_config.learning_rate = 0;
  s.routing.noise = {"gumbel", 2};
  s.routing.jitter_epsilon = 0.3;
  s.model_config.dropout = 0.3;
  TrainResult result;
  const std::vector<Probed> rows = probe_rows(s, &result);
  CHECK(result.counts[0] != result.counts[1]);
  REQUIRE(rows.size() == 10);
  for (size_t i = 2; i < rows.size(); ++i) {
    CHECK(rows[i].churn == 0);
    CHECK(rows[i].share == rows[i - 2].share);
    CHECK(rows[i].entropy == rows[i - 2].entropy);
  }
}

TEST_CASE("training does not notice the probe: losses, routing, time, traffic") {
  for (const int64_t zero : {0, 1}) {
    CAPTURE(zero);
    Scenario s = small_training(2, 2, 4, 2, 6);
    s.training_config.global_batch_size = 8;
    s.training_config.optimizer = "adamw";
    s.distributed_config.zero_stage = zero;
    s.routing.noise = {"gaussian", 0.5};
    s.model_config.moe_layer_config.bias_update_rate = 0.05;
    const auto figures = [](const StepRow& row) {
      std::vector<double> numbers{static_cast<double>(row.peak_memory_bytes), row.seconds(),
                                  static_cast<double>(row.host_syncs)};
      for (const auto& [purpose, sent] : row.by_purpose)
        numbers.push_back(static_cast<double>(sent.bytes));
      for (double part : row.parts.seconds) numbers.push_back(part);
      return numbers;
    };
    TrainRunOptions options;
    options.look_at_row = figures;
    const TrainResult without = train_in_child(s, options);
    options.probe = true;
    const TrainResult with = train_in_child(s, options);
    CHECK(with.losses == without.losses);
    CHECK(with.counts == without.counts);
    CHECK(with.parameters == without.parameters);
    REQUIRE(with.rows.size() == without.rows.size());
    // Times to the rounding of a clock that stands elsewhere; parts of some microseconds. The
    // derivatives by the weights stay until the step is over: one piece of 512 bytes a layer.
    const size_t width = with.rows.size() / 6;
    for (size_t i = 0; i < with.rows.size(); ++i) {
      CAPTURE(i);
      const double held = i % width == 0 ? 2 * 512 : 0;
      CHECK(with.rows[i] == Approx(without.rows[i]).epsilon(1e-9).margin(1e-12 + held));
    }
  }
}

TEST_CASE("harm is the sign of the loss against the expert's weight") {
  // One token, one expert of it: the weight is weight_scale x p, so the sign of the derivative by
  // the weight is that by weight_scale, which central differences of the loss give.
  int harmed = 0, helped = 0;
  for (int64_t seed = 1; seed <= 8; ++seed) {
    CAPTURE(seed);
    Scenario s = small_training(1, 1, 4, 1, 1);
    s.training_config.seed = seed;
    s.model_config.num_layers = 1;
    s.model_config.sequence_length = 1;
    const auto loss = [&](double scale) {
      s.routing.weight_scale = scale;
      return train_in_child(s).losses.at(0);
    };
    const double slope = loss(1 + 1e-4) - loss(1 - 1e-4);
    s.routing.weight_scale = 1;
    const std::vector<Probed> rows = probe_rows(s);
    REQUIRE(rows.size() == 1);
    CHECK(rows[0].harm == (slope > 0 ? 1 : 0));
    ++(slope > 0 ? harmed : helped);
  }
  CHECK(harmed > 0);
  CHECK(helped > 0);
}

TEST_CASE("how often, how much, and when not at all") {
  Scenario s = small_training(1, 1, 4, 2, 7);
  s.routing.probe.every_steps = 3;
  std::vector<double> steps;
  for (const Probed& row : probe_rows(s))
    if (row.layer == 0) steps.push_back(row.step);
  CHECK(steps == std::vector<double>{1, 4, 7});

  s.model_config.sequence_length = 100;
  s.training_config.global_batch_size = 64;
  CHECK(probe_sequences(s) == 6);  // 600 tokens are the first to reach 512
  s.training_config.global_batch_size = 4;
  CHECK(probe_sequences(s) == 4);
  s.routing.probe.sequences = 9;
  CHECK(probe_sequences(s) == 9);
  Scenario off = s;
  off.routing.probe.every_steps = 0;
  CHECK(probe_sequences(off) == 0);
  off = s;
  off.training_config.numerics = "none";
  CHECK(probe_sequences(off) == 0);
  off = s;
  off.routing.source = "W1";
  CHECK(probe_sequences(off) == 0);
  off = s;
  off.model_config.moe_layer_config.num_experts = 0;
  CHECK(probe_sequences(off) == 0);
}
