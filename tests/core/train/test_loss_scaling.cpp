// Loss scaling: the scale's course against its rule, one decision for the whole world, and training
// that is what it is without a scale.

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/train/loss_scaler.h"
#include "tests/core/train/small_training.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Matchers::Contains;

namespace {

LossScalingConfig config(const std::string& mode, double initial, int64_t interval,
                         int64_t hysteresis = 1) {
  LossScalingConfig c;
  c.mode = mode;
  c.initial_scale = initial;
  c.growth_interval_steps = interval;
  c.hysteresis = hysteresis;
  return c;
}

}  // namespace

TEST_CASE("the scale halves at an overflow and doubles after enough steps without one", "[C19]") {
  LossScaler scaler(config("dynamic", 1024, 3), DType::f32);
  const auto after = [&](bool overflow) {
    scaler.update(1, overflow);
    return scaler.scale();
  };
  CHECK(scaler.active());
  CHECK(after(true) == 512);
  CHECK(after(false) == 512);
  CHECK(after(false) == 512);
  CHECK(after(true) == 256);  // the two clean steps before do not count any more
  CHECK(after(false) == 256);
  CHECK(after(false) == 256);
  CHECK(after(false) == 512);
  CHECK(after(false) == 512);
}

TEST_CASE("with hysteresis two the second overflow lowers the scale") {
  LossScaler scaler(config("dynamic", 8, 2, 2), DType::f32);
  scaler.update(1, true);
  CHECK(scaler.scale() == 8);
  scaler.update(2, true);
  CHECK(scaler.scale() == 4);
  scaler.update(3, true);
  CHECK(scaler.scale() == 4);
  scaler.update(4, false);
  scaler.update(5, false);
  CHECK(scaler.scale() == 8);  // grown: the overflow of step 3 is forgotten
  scaler.update(6, true);
  CHECK(scaler.scale() == 8);
}

TEST_CASE("which trainings have a scale, and what is left of it after a checkpoint") {
  CHECK(LossScaler(config("auto", 4, 1), DType::f16).scale() == 4);
  CHECK_FALSE(LossScaler(config("auto", 4, 1), DType::bf16).active());
  CHECK_FALSE(LossScaler(config("none", 4, 1), DType::f16).active());
  CHECK(LossScaler(config("auto", 4, 1), DType::f32).scale() == 1);
  LossScaler fixed(config("static", 128, 1), DType::f16);
  fixed.update(1, true);
  fixed.update(2, false);
  CHECK(fixed.active());
  CHECK(fixed.scale() == 128);

  LossScaler before(config("dynamic", 1024, 3, 2), DType::f16);
  for (const bool overflow : {true, true, true, false}) before.update(1, overflow);
  TrainingPosition position;
  before.save(position);
  LossScaler after(config("dynamic", 7, 3, 2), DType::f16);
  after.restore(position);
  for (const bool overflow : {false, false, true, true, false}) {
    CHECK(after.scale() == before.scale());
    before.update(1, overflow);
    after.update(1, overflow);
  }
  CHECK(after.scale() == before.scale());
  CHECK(after.scale() != 7);
}

TEST_CASE("an overflow at the lowest scale ends the run") {
  LossScaler scaler(config("dynamic", 2, 3), DType::f16);
  scaler.update(1, true);
  try {
    scaler.update(7, true);
    FAIL("went on");
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::non_finite);
    CHECK_THAT(error.what(),
               Contains("step 7") && Contains("loss scale 1") && Contains("minimum_scale"));
  }
}

namespace {

Scenario scaled(int64_t dp, int64_t ep, const std::string& mode,
                const std::string& dtype = "fp32") {
  Scenario s = small_training(dp, ep, 4, 2, 8);
  s.model_config.moe_layer_config.z_loss_factor = 0.01;
  s.model_config.moe_layer_config.importance_loss_factor = 0.05;
  s.training_config.global_batch_size = 4;
  s.training_config.dtype = dtype;
  s.training_config.optimizer = "adamw";
  s.training_config.learning_rate = 0.003;
  s.training_config.max_grad_norm = 0.05;
  s.training_config.loss_scaling = config(mode, 1024, 3);
  return s;
}

}  // namespace

TEST_CASE("a power of two as the scale changes no bit of an fp32 training: every loss has it") {
  const TrainResult plain = train_in_child(scaled(2, 2, "none"));
  for (const char* mode : {"static", "dynamic"}) {
    const TrainResult with = train_in_child(scaled(2, 2, mode));
    CHECK(with.losses == plain.losses);
    CHECK(with.gradient_norms == plain.gradient_norms);
    CHECK(with.parameters == plain.parameters);
  }
}

namespace {

/// Trains eight steps in fp16 with an infinite gradient on one rank in step 3, and checks what all
/// ranks do. False: that rank counts nothing in the norm (its part is counted elsewhere), so
/// nothing was done.
bool check_overflow_on(int64_t sick, const Scenario& s) {
  TrainRunOptions options;
  options.look_at_gradients = [sick](Trainer& trainer, int64_t step) {
    if (step == 3 && trainer.rank() == sick)
      for (FlatGroup& group : trainer.groups())
        if (group.counts_in_norm()) {
          FillAttr infinite;
          infinite.value = std::numeric_limits<double>::infinity();
          trainer.context().launch(
              fill(group.gradient(group.own_begin(group.buckets()[0]), 1), infinite));
          break;
        }
    return std::vector<double>{};
  };
  options.look_after_step = [](Trainer& trainer, int64_t) {
    bool counts = false;
    double sum = 0;
    for (FlatGroup& group : trainer.groups()) {
      counts |= group.counts_in_norm();
      group.for_each_piece(trainer.context(), [&](const StatePiece& piece) {
        for (const double w : to_doubles(trainer, piece.weight)) sum += std::abs(w);
        for (const double m : to_doubles(trainer, piece.m)) sum += std::abs(m);
      });
    }
    return std::vector<double>{sum, counts ? 1.0 : 0.0};
  };
  options.look_at_row = [](const StepRow& row) {
    return std::vector<double>{row.loss_scale, row.skipped ? 1.0 : 0.0};
  };
  const TrainResult result = train_in_child(s, options);
  if (result.seen.at(static_cast<size_t>(sick)).at(1) == 0) return false;
  REQUIRE(result.rows.size() == 16);
  for (size_t step = 1; step <= 8; ++step) {
    CAPTURE(step);
    const double scale = result.rows[2 * step - 2], skipped = result.rows[2 * step - 1];
    // 1024 to step 3, 512 from step 4, 1024 again after three clean steps.
    CHECK(scale == (step <= 3 || step >= 7 ? 1024 : 512));
    CHECK(skipped == (step == 3 ? 1 : 0));
    for (const auto& of_rank : result.seen) {
      REQUIRE(of_rank.size() == 16);
      const double now = of_rank[2 * step - 2];
      CHECK(std::isfinite(now));
      // Weights and moments stay at the skipped step and move at all others.
      if (step > 1) CHECK((now == of_rank[2 * step - 4]) == (step == 3));
    }
  }
  // Replicas are still replicas.
  std::map<std::string, uint64_t> first;
  for (const auto& of_rank : result.checksums)
    for (const auto& [name, hash] : of_rank) CHECK(first.emplace(name, hash).first->second == hash);
  CHECK(std::isfinite(result.losses.back()));
  return true;
}

}  // namespace

TEST_CASE("an overflow on one rank skips the step on all, and the scale recovers",
          "[P133][P135][P136]") {
  for (const auto& [dp, ep] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {2, 2}, {1, 4}}) {
    CAPTURE(dp, ep);
    // The first copy of the last experts: it counts in the norm.
    CHECK(check_overflow_on(ep - 1, scaled(dp, ep, "dynamic", "fp16")));
  }
}

TEST_CASE("an overflow anywhere in TP, EP, DP and the pipeline skips the step on all", "[P133]") {
  const auto of = [](int64_t dp, int64_t ep, int64_t tp, int64_t etp, int64_t pp, int64_t zero) {
    Scenario s = scaled(dp, ep, "dynamic", "fp16");
    DistributedConfig& d = s.distributed_config;
    d.world_size = dp * ep * tp * pp;
    d.tensor_parallel_size = tp;
    d.expert_tensor_parallel_size = etp;
    d.pipeline_parallel_size = pp;
    d.zero_stage = zero;
    s.training_config.global_batch_size = 8;
    return s;
  };
  struct Case {
    Scenario scenario;
    int64_t counting;  ///< ranks that add to the norm
  };
  // With EP 2, TP 2 and split experts each of the four ranks of a stage has experts of its own;
  // with whole experts the second pair of ranks has what the first has; with ZeRO 1 and 3 every
  // rank adds its share.
  for (const Case& c : std::vector<Case>{{of(1, 2, 2, 2, 2, 0), 8},
                                         {of(1, 2, 2, 1, 2, 0), 4},
                                         {of(2, 2, 1, 1, 2, 1), 8},
                                         {of(2, 1, 2, 1, 2, 3), 8}}) {
    int64_t counting = 0;
    for (int64_t sick = 0; sick < 8; ++sick) {
      CAPTURE(sick, c.scenario.distributed_config.zero_stage);
      counting += check_overflow_on(sick, c.scenario);
    }
    CHECK(counting == c.counting);
  }
}

TEST_CASE("a scale that is too large falls until gradients fit, and training goes on", "[C19]") {
  Scenario s = scaled(1, 2, "dynamic", "fp16");
  s.training_config.steps = 40;
  s.training_config.loss_scaling.initial_scale = std::exp2(40);
  s.training_config.loss_scaling.growth_interval_steps = 1000;
  TrainRunOptions options;
  options.look_at_row = [](const StepRow& row) {
    return std::vector<double>{row.loss_scale, row.skipped ? 1.0 : 0.0};
  };
  const TrainResult result = train_in_child(s, options);
  int skipped = 0;
  for (size_t i = 0; i < result.rows.size(); i += 2) {
    CHECK(result.rows[i] == std::exp2(40 - skipped));
    skipped += result.rows[i + 1] == 1;
    // The first ones in a row; then it trains, though gradients may grow into an overflow again.
    if (i / 2 < 19) CHECK(skipped == static_cast<int>(i / 2) + 1);
  }
  // fp16 ends at 65504 and the largest logit gradient is near 1 / nominal tokens = 1 / 24, so that
  // 2^21 is too large at least.
  CHECK(skipped >= 19);
  CHECK(skipped < 30);
  CHECK(result.losses.back() < result.losses.front());
}

TEST_CASE("fp16 learns what fp32 learns; router weights, masters and moments are fp32", "[P101]") {
  Scenario s = scaled(2, 2, "auto", "fp16");
  s.model_config.hidden_size = 16;
  s.model_config.sequence_length = 16;
  s.model_config.init_std = 0.1;
  s.training_config.steps = 50;
  s.training_config.global_batch_size = 8;
  s.training_config.learning_rate = 0.01;
  s.training_config.max_grad_norm = 1;
  TrainRunOptions options;
  options.look_after_step = [](Trainer& trainer, int64_t) {
    for (const Parameter& p : trainer.parameters().all())
      CHECK(p.value.dtype == (p.kind == ParameterKind::router ? DType::f32 : DType::f16));
    for (FlatGroup& group : trainer.groups())
      group.for_each_piece(trainer.context(), [](const StatePiece& piece) {
        CHECK(piece.weight.dtype == DType::f32);
        CHECK(piece.m.dtype == DType::f32);
      });
    return std::vector<double>{};
  };
  const TrainResult narrow = train_in_child(s, options);
  s.training_config.dtype = "fp32";
  const TrainResult wide = train_in_child(s);
  CHECK(narrow.losses.back() < 0.8 * narrow.losses.front());
  CHECK(narrow.losses.back() == Approx(wide.losses.back()).epsilon(0.02));
}
