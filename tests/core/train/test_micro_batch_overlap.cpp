// The forward of one micro-batch beside the backward of another: nothing that is computed changes
// by a bit, and what is exchanged travels while the other computes. That it trains what one rank
// trains is in tests/equivalence.

#include <atomic>
#include <catch2/catch.hpp>

#include "core/base/error.h"
#include "tests/core/train/small_training.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

Scenario small(int64_t dp, int64_t ep, int64_t micro_batches) {
  Scenario s = small_training(dp, ep, 4, 2, 4);
  s.model_config.num_layers = 4;
  s.model_config.moe_layer_config.bias_update_rate = 0.01;
  s.training_config.global_batch_size = dp * ep * micro_batches;
  s.training_config.dtype = "fp32";
  s.training_config.optimizer = "adamw";
  s.training_config.learning_rate = 0.003;
  s.training_config.max_grad_norm = 0.05;
  return s;
}

/// Trains the same bits with and without.
void check_same_bits(Scenario s) {
  const TrainResult plain = train_in_child(s);
  s.distributed_config.comm_optimization.micro_batch_overlap = true;
  const TrainResult paired = train_in_child(s);
  CHECK(paired.losses == plain.losses);
  CHECK(paired.gradient_norms == plain.gradient_norms);
  CHECK(paired.counts == plain.counts);
  CHECK(paired.gradients == plain.gradients);
  CHECK(paired.parameters == plain.parameters);
  CHECK(paired.checksums == plain.checksums);
}

}  // namespace

TEST_CASE("pairs of micro-batches train the same bits") {
  Scenario s = small(2, 2, 4);
  DistributedConfig& d = s.distributed_config;
  SECTION("everything random, losses of all kinds, a shared expert, chunks of tokens") {
    s.model_config.dropout = 0.1;
    s.routing.jitter_epsilon = 0.01;
    s.routing.noise = {"gumbel", 0.1};
    s.model_config.moe_layer_config.z_loss_factor = 0.01;
    s.model_config.moe_layer_config.importance_loss_factor = 0.05;
    s.model_config.moe_layer_config.aux_loss_scope = "global_batch";
    s.model_config.moe_layer_config.shared_expert_hidden_size = 8;
    d.comm_optimization.all_to_all_overlap = true;
  }
  SECTION("bf16, tokens that are dropped, a layer in two dense") {
    s.training_config.dtype = "bf16";
    s.model_config.moe_layer_config.capacity_factor = 1;
    s.model_config.moe_layer_config.moe_every_k_layers = 2;
  }
  SECTION("full recompute") { s.training_config.recompute = "full"; }
  SECTION("selective recompute, ZeRO 1") {
    s.training_config.recompute = "selective";
    d.zero_stage = 1;
  }
  SECTION("TP with sequence parallelism and split experts") {
    s = small(1, 2, 4);
    s.distributed_config.world_size = 4;
    s.distributed_config.tensor_parallel_size = 2;
    s.distributed_config.expert_tensor_parallel_size = 2;
    s.distributed_config.sequence_parallel = true;
  }
  SECTION("one micro-batch: no pair") { s.training_config.global_batch_size = 4; }
  check_same_bits(s);
}

TEST_CASE("pairs whose layers gather and free the same parameters") {
  for (const char* strategy : {"FULL_SHARD", "SHARD_GRAD_OP"})
    for (const int64_t limit : {1, 2, 4}) {
      CAPTURE(strategy, limit);
      Scenario s = small(2, 2, 3);
      s.model_config.tie_embeddings = limit != 2;
      FsdpConfig& fsdp = s.distributed_config.fsdp;
      fsdp.sharding_strategy = strategy;
      fsdp.limit_all_gathers = limit;
      fsdp.cpu_offload = limit == 4;
      fsdp.backward_prefetch = limit == 1 ? "none" : "BACKWARD_PRE";
      fsdp.forward_prefetch = limit != 1;
      check_same_bits(s);
    }
}

TEST_CASE("pairs in pipeline stages train the same bits") {
  Scenario s = small(1, 2, 8);
  DistributedConfig& d = s.distributed_config;
  d.pipeline_parallel_size = 2;
  d.world_size = 4;
  SECTION("two stages") {}
  SECTION("four stages, tied embeddings alone on the first and the last") {
    d.pipeline_parallel_size = 4;
    d.world_size = 8;
    d.layers_per_stage = {0, 2, 2, 0};
  }
  SECTION("fewer micro-batches than go ahead") {
    d.pipeline_parallel_size = 4;
    d.world_size = 8;
    s.training_config.global_batch_size = 6;
  }
  SECTION("virtual stages") {
    d.pipeline_schedule = "interleaved_1f1b";
    d.virtual_pipeline_size = 2;
  }
  SECTION("sharded parameters") { d.fsdp.sharding_strategy = "SHARD_GRAD_OP"; }
  check_same_bits(s);
}

namespace {

/// A step in which the exchange takes long: parts of the last step, seconds.
struct Timed {
  double step, compute, visible, hidden;
  std::vector<double> activations;  ///< most bytes, by rank
};
Timed timed(Scenario s, bool overlap) {
  s.distributed_config.comm_optimization.micro_batch_overlap = overlap;
  TrainRunOptions options;
  options.tensors = options.check_access = options.poison = false;
  options.look_at_row = [](const StepRow& row) {
    return std::vector<double>{row.seconds(), row.parts[Part::compute], row.parts[Part::all_to_all],
                               row.parts.all_to_all_hidden};
  };
  options.look_after_step = [](Trainer& trainer, int64_t) {
    return std::vector<double>{
        static_cast<double>(trainer.context().memory.use().bytes_at_peak[static_cast<size_t>(
            MemoryClass::activations)])};
  };
  const TrainResult r = train_in_child(s, options);
  REQUIRE(r.rows.size() == 8);
  Timed t{r.rows[4], r.rows[5], r.rows[6], r.rows[7], {}};
  for (const auto& of_rank : r.seen) t.activations.push_back(of_rank.back());
  return t;
}

/// Eight GPUs that exchange at 10 GB/s and compute at 1 Tflop/s: with hidden size 512 and expert
/// width 1024 both take about as long.
Scenario large(int64_t ep, int64_t stages, int64_t micro_batches) {
  Scenario s = small_training(1, ep, 8, 2, 2);
  s.model_config.hidden_size = 512;
  s.model_config.num_layers = 4;
  s.model_config.sequence_length = 1024;
  s.model_config.vocab_size = 512;
  s.model_config.moe_layer_config.expert_hidden_size = 512;
  s.routing.source = "uniform";
  s.training_config.dtype = "bf16";
  s.training_config.numerics = "none";
  s.training_config.global_batch_size = ep * micro_batches;
  s.distributed_config.world_size = ep * stages;
  s.distributed_config.pipeline_parallel_size = stages;
  return s;
}

}  // namespace

TEST_CASE("the exchange of one micro-batch is hidden under the compute of another") {
  const Scenario s = large(8, 1, 8);
  const Timed plain = timed(s, false), paired = timed(s, true);
  CAPTURE(plain.step, plain.compute, plain.visible, paired.step, paired.compute, paired.visible,
          paired.hidden);
  // The same work in less time.
  CHECK(paired.compute == Approx(plain.compute).epsilon(1e-6));
  CHECK(paired.visible + paired.hidden == Approx(plain.visible + plain.hidden).epsilon(0.01));
  // Alone a micro-batch hides nothing: it waits for what it sent.
  CHECK(plain.hidden < 0.01 * plain.visible);
  // Seven of eight forwards and backwards have a partner, and a forward waits for two exchanges a
  // layer as does a backward: at most 7/8 of the exchange can be hidden. Most of that is.
  CHECK(paired.hidden <= 7.0 / 8 * (paired.visible + paired.hidden));
  CHECK(paired.hidden > 0.6 * (paired.visible + paired.hidden));
  CHECK(paired.step < plain.step - 0.9 * paired.hidden);
  // Two micro-batches in flight, of which one grows while the other is freed.
  CHECK(paired.activations[0] > plain.activations[0]);
  CHECK(paired.activations[0] < 2 * plain.activations[0]);
}

TEST_CASE("it is hidden in pipeline stages too, for more micro-batches in flight") {
  Scenario s = large(4, 2, 12);
  const Timed plain = timed(s, false), paired = timed(s, true);
  CAPTURE(plain.step, plain.visible, paired.step, paired.visible, paired.hidden);
  CHECK(paired.hidden > 0.4 * (paired.visible + paired.hidden));
  CHECK(paired.step < plain.step);
  // Stage s has at most 2 (p - s) in flight instead of p - s.
  for (const size_t rank : {size_t{0}, size_t{4}}) {
    CHECK(paired.activations[rank] > plain.activations[rank]);
    CHECK(paired.activations[rank] < 2 * plain.activations[rank]);
  }
}

TEST_CASE("what fails in one of a pair ends the run with its message") {
  Scenario s = small(1, 2, 4);
  s.distributed_config.comm_optimization.micro_batch_overlap = true;
  s.training_config.steps = 1;
  TrainRunOptions options;
  // Data that fails in the third forward of either rank, whose partner waits for an exchange.
  options.data = [&s] {
    struct Poisoned : TokenSource {
      explicit Poisoned(const Scenario& of)
          : inner(synthetic_data(1, of.model_config.sequence_length, of.model_config.vocab_size)) {}
      int64_t sequences(Split split) const override { return inner->sequences(split); }
      void read(Split split, int64_t sequence, int32_t* tokens) const override {
        inner->read(split, sequence, tokens);
        if (++reads > 5) throw Error(ErrorClass::fault, "the disk is gone");
      }
      std::string description() const override { return "fails"; }
      std::unique_ptr<TokenSource> inner;
      mutable std::atomic<int> reads{0};
    };
    return std::make_unique<Poisoned>(s);
  };
  CHECK_THROWS_WITH(train_in_child(s, options), Catch::Matchers::Contains("the disk is gone"));
}
