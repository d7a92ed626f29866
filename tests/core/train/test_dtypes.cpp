// 16-bit training: what is kept wide, and that it learns what fp32 learns.

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "tests/core/train/small_training.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

Scenario learning(int64_t dp, int64_t ep, const std::string& dtype) {
  Scenario s = small_training(dp, ep, 4, 2, 50);
  s.model_config.hidden_size = 16;
  s.model_config.sequence_length = 16;
  s.model_config.init_std = 0.1;
  s.training_config.global_batch_size = 8;
  s.training_config.dtype = dtype;
  s.training_config.optimizer = "adamw";
  s.training_config.learning_rate = 0.01;
  s.training_config.max_grad_norm = 1;
  return s;
}

float rounded_to_bf16(double value) {
  const float wide = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &wide, sizeof bits);
  bits += 0x7fffu + (bits >> 16 & 1u);  // to nearest even
  bits &= 0xffff0000u;
  float narrow;
  std::memcpy(&narrow, &bits, sizeof narrow);
  return narrow;
}

}  // namespace

TEST_CASE("bf16 learns what fp32 learns, on one rank and on DP=2 x EP=2", "[C14]") {
  for (const auto& [dp, ep] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {2, 2}}) {
    CAPTURE(dp, ep);
    const TrainResult narrow = train_in_child(learning(dp, ep, "bf16"));
    const TrainResult wide = train_in_child(learning(dp, ep, "fp32"));
    REQUIRE(narrow.losses.size() == 50);
    CHECK(narrow.losses.front() > 2.5);
    CHECK(narrow.losses.back() < 0.8 * narrow.losses.front());
    CHECK(narrow.losses.back() == Approx(wide.losses.back()).epsilon(0.02));
    for (const double loss : narrow.losses) CHECK(std::isfinite(loss));
  }
}

TEST_CASE("in a bf16 model router weights, logits, scores and the balance bias are fp32",
          "[P101][P099][P102]") {
  Scenario s = learning(1, 2, "bf16");
  s.training_config.steps = 3;
  s.model_config.moe_layer_config.bias_update_rate = 0.001;
  TrainRunOptions options;
  options.look_after_step = [](Trainer& trainer, int64_t) {
    for (const Parameter& p : trainer.parameters().all()) {
      const bool router = p.kind == ParameterKind::router;
      CHECK(p.value.dtype == (router ? DType::f32 : DType::bf16));
      CHECK(p.gradient.dtype == DType::f32);
    }
    CHECK(trainer.balance().bias(0).dtype == DType::f32);
    CHECK(trainer.clip_factor().dtype == DType::f32);
    // Parameters are the rounded master copies, whatever the steps before.
    std::vector<double> pairs;
    for (FlatGroup& group : trainer.groups())
      for (const FlatBucket& bucket : group.buckets()) {
        const int64_t begin = group.own_begin(bucket), count = group.own_count(bucket);
        const FlatGroup::State state = group.state(bucket, begin, count);
        if (!state.separate_master) continue;
        const auto master = to_doubles(trainer, state.weight);
        const auto value = to_doubles(trainer, group.value(begin, count));
        for (size_t i = 0; i < master.size(); ++i) pairs.insert(pairs.end(), {master[i], value[i]});
      }
    return pairs;
  };
  const TrainResult result = train_in_child(s, options);
  size_t rounded = 0;
  for (const auto& of_rank : result.seen) {
    REQUIRE(of_rank.size() > 1000);
    for (size_t i = 0; i < of_rank.size(); i += 2) {
      if (of_rank[i + 1] != static_cast<double>(rounded_to_bf16(of_rank[i])))
        FAIL_CHECK(of_rank[i] << " became " << of_rank[i + 1]);
      rounded += of_rank[i] != of_rank[i + 1];
    }
  }
  CHECK(rounded > 1000);  // the master copies do know more
}
