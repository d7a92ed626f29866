// Pipeline stages: what users of other programs met, and what the schedules promise in time and
// memory. That any pipeline trains what one rank trains is in tests/equivalence.

#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "core/ops/elementwise.h"
#include "tests/core/train/small_training.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

Scenario piped(Scenario s, int64_t stages, const char* schedule = "1f1b") {
  DistributedConfig& d = s.distributed_config;
  d.world_size *= stages;
  d.pipeline_parallel_size = stages;
  d.pipeline_schedule = schedule;
  return s;
}

Scenario on_one_rank(Scenario s) {
  DistributedConfig& d = s.distributed_config;
  d.world_size = d.data_parallel_size = d.expert_parallel_size = d.pipeline_parallel_size =
      d.virtual_pipeline_size = 1;
  d.pipeline_schedule = "1f1b";
  d.layers_per_stage.clear();
  d.num_layers_in_first_pipeline_stage = d.num_layers_in_last_pipeline_stage = 0;
  return s;
}

void check_equal(const TrainResult& result, const TrainResult& expected) {
  CHECK(distance(result.gradients, expected.gradients).value <= 1e-9);
  CHECK(distance(result.parameters, expected.parameters).value <= 1e-9);
  CHECK(result.counts == expected.counts);
  REQUIRE(result.losses.size() == expected.losses.size());
  for (size_t i = 0; i < result.losses.size(); ++i)
    CHECK(result.losses[i] == Approx(expected.losses[i]).epsilon(1e-9));
}

/// Sequences of which some have a last target that does not count: other numbers on every rank.
class Ragged : public TokenSource {
 public:
  explicit Ragged(const Scenario& s)
      : inner_(synthetic_data(7, s.model_config.sequence_length, s.model_config.vocab_size)),
        length_(s.model_config.sequence_length) {}
  int64_t sequences(Split split) const override { return inner_->sequences(split); }
  void read(Split split, int64_t sequence, int32_t* tokens) const override {
    inner_->read(split, sequence, tokens);
    if (sequence % 3 != 0) tokens[length_] = -1;
  }
  std::string description() const override { return "ragged"; }

 private:
  std::unique_ptr<TokenSource> inner_;
  int64_t length_;
};

/// Per rank: seconds of bubble and of compute of the step whose row is looked at.
TrainRunOptions timed() {
  TrainRunOptions options;
  options.tensors = options.poison = options.check_access = false;
  options.look_at_row = [](const StepRow& row) {
    return std::vector<double>{row.parts[Part::bubble], row.parts[Part::compute],
                               row.parts[Part::other_communication], row.seconds()};
  };
  options.look_after_step = [](Trainer& trainer, int64_t) {
    const MemoryUse& use = trainer.context().memory.use();
    return std::vector<double>{
        static_cast<double>(use.bytes_at_peak[static_cast<size_t>(MemoryClass::activations)])};
  };
  return options;
}

/// A dense model whose stages take equally long: a vocabulary so small that the ends do not count.
Scenario even_stages(int64_t stages, const char* schedule, int64_t micro_batches) {
  Scenario s = piped(small_training(1, 1, 0, 1, 1), stages, schedule);
  ModelConfig& m = s.model_config;
  m.moe_layer_config.num_experts = 0;
  m.num_layers = 2 * stages;
  m.hidden_size = 4096;
  m.num_attention_heads = 32;
  m.ffn_hidden_size = 16384;
  m.sequence_length = 2048;
  m.vocab_size = 16;
  m.tie_embeddings = false;
  TrainingConfig& t = s.training_config;
  t.numerics = "none";
  t.dtype = "bf16";
  t.global_batch_size = micro_batches;
  s.memory.on_exceed = "report";
  if (s.distributed_config.pipeline_schedule == "interleaved_1f1b")
    s.distributed_config.virtual_pipeline_size = 2;
  return s;
}

}  // namespace

TEST_CASE("expert parallel inside stages: 20 steps as without a pipeline", "[P035]") {
  for (const char* schedule : {"gpipe", "1f1b", "zb_h1", "interleaved_1f1b"}) {
    CAPTURE(schedule);
    Scenario s = small_training(1, 2, 4, 2, 20);
    s.model_config.num_layers = 4;
    s.training_config.global_batch_size = 8;  // four micro-batches
    s.training_config.learning_rate = 0.1;
    Scenario p = piped(s, 2, schedule);
    if (p.distributed_config.pipeline_schedule == "interleaved_1f1b")
      p.distributed_config.virtual_pipeline_size = 2;
    const TrainResult result = train_in_child(p), expected = train_in_child(s);
    REQUIRE(result.losses.size() == 20);
    for (size_t i = 0; i < 20; ++i)
      CHECK(result.losses[i] == Approx(expected.losses[i]).epsilon(1e-6));
  }
}

TEST_CASE("a stage without a MoE layer; the balance loss is the mean over the model's MoE layers",
          "[P038]") {
  Scenario s = small_training(1, 1, 4, 2, 3);
  s.model_config.num_layers = 8;
  s.model_config.moe_layer_config.moe_every_k_layers = 2;  // layers 1, 3, 5 and 7
  s.training_config.global_batch_size = 4;
  TrainRunOptions options;
  options.look_at_row = [](const StepRow& row) {
    return std::vector<double>{static_cast<double>(row.layers.size()), row.aux, row.z};
  };
  Scenario p = piped(s, 4);
  p.distributed_config.layers_per_stage = {1, 3, 2, 2};  // the first stage has layer 0 alone
  const TrainResult result = train_in_child(p, options), expected = train_in_child(s, options);
  check_equal(result, expected);
  REQUIRE(result.rows.size() == expected.rows.size());
  for (size_t i = 0; i < result.rows.size(); ++i)
    CHECK(result.rows[i] == Approx(expected.rows[i]).epsilon(1e-9));
  CHECK(result.rows.at(0) == 4);
  CHECK(result.rows.at(1) >= 1);  // E sum f P, 1 when balanced
}

TEST_CASE("stages with other numbers of MoE layers", "[P039]") {
  Scenario s = small_training(1, 1, 2, 1, 2);
  s.model_config.num_layers = 5;
  s.training_config.global_batch_size = 2;
  Scenario p = piped(s, 2);
  p.distributed_config.num_layers_in_last_pipeline_stage = 3;
  check_equal(train_in_child(p), train_in_child(s));
  p.distributed_config.num_layers_in_last_pipeline_stage = 0;
  p.distributed_config.num_layers_in_first_pipeline_stage = 1;
  check_equal(train_in_child(p), train_in_child(s));
}

TEST_CASE("one norm for all stages: 3 on one and 4 on the other are 5", "[P121]") {
  Scenario s = small_training(1, 1, 2, 1, 1);
  s.training_config.max_grad_norm = 1;
  TrainRunOptions options;
  options.look_at_gradients = [](Trainer& trainer, int64_t) {
    Context& context = trainer.context();
    for (FlatGroup& group : trainer.groups()) context.launch(fill(group.gradients(), {}));
    for (const Parameter& p : trainer.parameters().all())
      for (const auto& [name, value] : {std::pair{"layers.0.attention.out.weight", 3.0},
                                        std::pair{"layers.1.attention.out.weight", 4.0}})
        if (p.name == name) context.launch(fill(p.gradient.slice(0, {1}), {value}));
    return std::vector<double>{};
  };
  options.look_after_step = [](Trainer& trainer, int64_t) {
    return to_doubles(trainer, trainer.clip_factor());
  };
  const TrainResult result = train_in_child(piped(s, 2), options);
  REQUIRE(result.seen.size() == 2);
  for (const auto& of_rank : result.seen) {
    CHECK(of_rank.at(0) == Approx(1 / (5 + 1e-6)).epsilon(1e-12));
    CHECK(of_rank.at(1) == Approx(5).epsilon(1e-12));
  }
}

TEST_CASE("other numbers of valid tokens on every rank and stage", "[P166][P167]") {
  Scenario s = small_training(2, 1, 4, 2, 3);
  s.model_config.num_layers = 4;
  s.training_config.global_batch_size = 8;
  TrainRunOptions options;
  options.data = [&] { return std::make_unique<Ragged>(s); };
  const TrainResult expected = train_in_child(on_one_rank(s), options);
  check_equal(train_in_child(piped(s, 2), options), expected);
  check_equal(train_in_child(piped(s, 4, "zb_h1"), options), expected);
}

TEST_CASE("validation goes through the stages, also where some ranks have fewer sequences") {
  for (const int64_t sequences : {1, 5, 8}) {
    CAPTURE(sequences);
    Scenario s = small_training(1, 2, 4, 2, 1);
    s.model_config.num_layers = 4;
    s.training_config.micro_batch_size = 2;
    s.training_config.global_batch_size = 8;
    s.training_config.validation_sequences = sequences;
    const double expected = train_in_child(on_one_rank(s)).validation_loss;
    CHECK(std::isfinite(expected));
    CHECK(train_in_child(piped(s, 2)).validation_loss == Approx(expected).epsilon(1e-9));
    Scenario interleaved = piped(s, 2, "interleaved_1f1b");
    interleaved.distributed_config.virtual_pipeline_size = 2;
    CHECK(train_in_child(interleaved).validation_loss == Approx(expected).epsilon(1e-9));
  }
}

TEST_CASE("a model starts from the same weights on any number of stages") {
  Scenario s = small_training(1, 1, 4, 2, 1);
  s.model_config.num_layers = 4;
  s.training_config.learning_rate = 0;
  const TrainResult expected = train_in_child(s);
  for (const int64_t stages : {2, 4})
    CHECK(train_in_child(piped(s, stages)).parameters == expected.parameters);  // every bit
}

TEST_CASE("the part bubble is what the schedule leaves") {
  // p = 4, m = 8: (p - 1) / m of the work for GPipe and 1F1B, half of it with two chunks.
  const auto bubble = [](const char* schedule) {
    const TrainResult r = train_in_child(even_stages(4, schedule, 8), timed());
    CAPTURE(schedule, r.rows);
    REQUIRE(r.rows.size() == 4);
    return r.rows[0] / r.rows[1];
  };
  CHECK(bubble("gpipe") == Approx(3.0 / 8).epsilon(0.05));
  CHECK(bubble("1f1b") == Approx(3.0 / 8).epsilon(0.05));
  CHECK(bubble("interleaved_1f1b") == Approx(3.0 / 16).epsilon(0.1));
  // (p - 1)(F + B - W) of m (F + B + W): 3 / 24 with three equal parts; attention has no weights,
  // so B is larger than W here.
  CHECK(bubble("zb_h1") < 0.6 * 3.0 / 8);
  CHECK(bubble("zb_h1") > 3.0 / 24);
}

TEST_CASE("activations in memory follow from the micro-batches in flight") {
  const auto activations = [](const char* schedule) {
    std::vector<double> of_rank;
    for (const auto& seen : train_in_child(even_stages(4, schedule, 8), timed()).seen)
      of_rank.push_back(seen.at(0));
    return of_rank;
  };
  const std::vector<double> all = activations("gpipe"), few = activations("1f1b");
  // Eight against 4, 3, 2 and 1; what one backward needs besides is on top of both.
  for (size_t stage = 0; stage < 4; ++stage) {
    CAPTURE(stage);
    const double kept = 4 - static_cast<double>(stage);
    CHECK(few[stage] / all[stage] > kept / 8);
    CHECK(few[stage] / all[stage] < (kept + 1) / 9);
  }
}
