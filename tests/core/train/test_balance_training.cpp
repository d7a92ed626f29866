// What the balance losses do to the gradients of a whole training step, whatever its micro-batches.

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/core/train/small_training.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

const char* const kRouter = "layers.0.moe.router.weight";

double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum);
}

/// The part of the gradients that the balance losses bring: gradients are linear in the factors.
GlobalTensors balance_part(Scenario with, const TrainRunOptions& options = {}) {
  Scenario without = with;
  MoeLayerConfig& moe = without.model_config.moe_layer_config;
  moe.aux_loss_factor = moe.z_loss_factor = moe.importance_loss_factor = 0;
  GlobalTensors part = train_in_child(with, options).gradients;
  const GlobalTensors task = train_in_child(without, options).gradients;
  for (auto& [name, values] : part)
    for (size_t i = 0; i < values.size(); ++i) values[i] -= task.at(name)[i];
  return part;
}

/// Every sequence is the same.
class OneSequence : public TokenSource {
 public:
  OneSequence(int64_t length, int64_t vocab) : length_(length), vocab_(vocab) {}
  int64_t sequences(Split) const override { return 1000; }
  void read(Split, int64_t, int32_t* tokens) const override {
    for (int64_t i = 0; i <= length_; ++i)
      tokens[i] = static_cast<int32_t>((3 + 5 * i * i) % vocab_);
  }
  std::string description() const override { return "one sequence"; }

 private:
  int64_t length_, vocab_;
};

TrainRunOptions one_sequence(const Scenario& s) {
  TrainRunOptions options;
  options.data = [length = s.model_config.sequence_length, vocab = s.model_config.vocab_size] {
    return std::make_unique<OneSequence>(length, vocab);
  };
  return options;
}

}  // namespace

TEST_CASE("k = 1: the task teaches the router through raw scores, never through normalised ones",
          "[P054]") {
  Scenario s = small_training(1, 2, 4, 1, 1);
  s.model_config.moe_layer_config.aux_loss_factor = 0;
  CHECK(norm(train_in_child(s).gradients.at(kRouter)) > 1e-3);
  s.routing.normalize_weights = 1;
  const TrainResult normalised = train_in_child(s);
  for (const double g : normalised.gradients.at(kRouter)) CHECK(g == 0);
}

TEST_CASE("the balance loss reaches the router, the norm before it and the embedding", "[P083]") {
  const GlobalTensors part = balance_part(small_training(1, 1, 4, 2, 1));
  for (const char* name :
       {kRouter, "layers.1.moe.router.weight", "layers.0.ffn_norm.gamma", "embedding.table"})
    CHECK(norm(part.at(name)) > 1e-5);
  // The experts do not decide who is chosen.
  CHECK(norm(part.at("layers.1.moe.experts.w1")) < 1e-14);
}

TEST_CASE("sequence scope: one micro-batch of two sequences or two of one", "[P090]") {
  Scenario s = small_training(1, 1, 4, 2, 1);
  s.model_config.moe_layer_config.aux_loss_scope = "sequence";
  s.model_config.moe_layer_config.aux_loss_factor = 1;
  s.training_config.global_batch_size = 2;
  const TrainResult two_of_one = train_in_child(s);
  s.training_config.micro_batch_size = 2;
  const TrainResult one_of_two = train_in_child(s);
  CHECK(distance(two_of_one.gradients, one_of_two.gradients).value <= 1e-12);
  CHECK(norm(one_of_two.gradients.at(kRouter)) > 1e-3);
}

TEST_CASE("global_batch scope: the same ranks' tokens, the same loss, wherever experts are") {
  // Counts are of all ranks' tokens so far, so layouts of four ranks agree with each other.
  Scenario s = small_training(4, 1, 4, 2, 3);
  s.model_config.moe_layer_config.aux_loss_scope = "global_batch";
  s.model_config.moe_layer_config.aux_loss_factor = 1;
  s.training_config.global_batch_size = 8;
  const TrainResult expected = train_in_child(s);
  for (const int64_t ep : {2, 4}) {
    s.distributed_config.expert_parallel_size = ep;
    s.distributed_config.data_parallel_size = 4 / ep;
    const TrainResult result = train_in_child(s);
    CHECK(distance(result.gradients, expected.gradients).value <= 1e-9);
    CHECK(distance(result.parameters, expected.parameters).value <= 1e-9);
  }
}

TEST_CASE("four equal micro-batches have the balance gradient of one", "[P091]") {
  for (const char* scope : {"micro_batch", "sequence", "global_batch"}) {
    CAPTURE(scope);
    Scenario s = small_training(1, 1, 4, 2, 1);
    s.model_config.moe_layer_config.aux_loss_scope = scope;
    s.model_config.moe_layer_config.aux_loss_factor = 1;
    s.model_config.moe_layer_config.z_loss_factor = 0.1;
    s.model_config.moe_layer_config.importance_loss_factor = 0.1;
    const TrainRunOptions options = one_sequence(s);
    const GlobalTensors one = balance_part(s, options);
    s.training_config.global_batch_size = 4;
    const GlobalTensors four = balance_part(s, options);
    CHECK(norm(one.at(kRouter)) > 1e-3);
    CHECK(distance(four, one).value <= 1e-9);
    // The same over four ranks.
    s.distributed_config.world_size = s.distributed_config.data_parallel_size = 4;
    CHECK(distance(balance_part(s, options), one).value <= 1e-9);
  }
}

TEST_CASE("the selection bias moves by its rate once per optimizer step", "[P087]") {
  // Two experts, so that recentring changes nothing; four micro-batches on each of four ranks.
  Scenario s = small_training(2, 2, 2, 1, 3);
  s.model_config.num_layers = 1;
  s.model_config.moe_layer_config.bias_update_rate = 0.001;
  s.training_config.global_batch_size = 16;
  TrainRunOptions options;
  options.look_after_step = [](Trainer& trainer, int64_t) {
    return to_doubles(trainer, trainer.balance().bias(0));
  };
  const TrainResult result = train_in_child(s, options);
  double expected = 0;
  for (size_t step = 0; step < 3; ++step) {
    const int64_t n0 = result.counts[step][0], n1 = result.counts[step][1];
    CHECK(n0 + n1 == 16 * 6);
    expected += n0 == n1 ? 0 : n0 < n1 ? 0.001 : -0.001;
    for (const auto& of_rank : result.seen) {
      CHECK(of_rank[2 * step] == Approx(expected).margin(1e-12));
      CHECK(of_rank[2 * step + 1] == Approx(-expected).margin(1e-12));
    }
  }
}

TEST_CASE("a thousand steps without balance losses: memory stays flat", "[P093]") {
  Scenario s = small_training(1, 1, 2, 1, 1000);
  s.model_config.num_layers = 1;
  s.model_config.sequence_length = 3;
  s.model_config.moe_layer_config.aux_loss_factor = 0;
  s.training_config.learning_rate = 0.01;
  TrainRunOptions options;
  options.check_access = false;
  options.look_after_step = [](Trainer& trainer, int64_t) {
    const MemoryUse& use = trainer.context().memory.use();
    return std::vector<double>{static_cast<double>(use.allocated), static_cast<double>(use.peak),
                               static_cast<double>(use.reserved)};
  };
  const TrainResult result = train_in_child(s, options);
  const std::vector<double>& seen = result.seen[0];
  REQUIRE(seen.size() == 3000);
  for (size_t i = 30; i < seen.size(); ++i)
    if (seen[i] != seen[30 + i % 3])
      FAIL_CHECK("step " << i / 3 + 1 << ": " << seen[i] << " bytes, not " << seen[30 + i % 3]);
}
