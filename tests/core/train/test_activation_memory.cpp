// What a transformer layer keeps for its backward as Megatron's kernels do, against the closed
// forms of Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models"
// (2022), equations 1 to 4 and 6: s b h (34 + 5 a s / h) bytes, divided by what TP and sequence
// parallelism divide. s sequence, b micro-batch, h hidden, a heads, t TP.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/core/train/small_training.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

constexpr int64_t kS = 256, kB = 2, kH = 128, kA = 4;

/// Its peak is at the logits, when all layers' activations are there and no layer is at work.
Scenario megatron(int64_t layers, int64_t tp) {
  Scenario s = small_training(1, 1, 1, 1, 1);
  ModelConfig& m = s.model_config;
  m.moe_layer_config.num_experts = 0;
  m.hidden_size = kH;
  m.num_attention_heads = kA;
  m.ffn_hidden_size = 4 * kH;
  m.num_layers = layers;
  m.sequence_length = kS;
  m.vocab_size = 32768;
  m.activation = "gelu";
  m.normalization = "layernorm";
  m.dropout = 0.1;
  s.training_config.micro_batch_size = s.training_config.global_batch_size = kB;
  s.training_config.dtype = "bf16";
  s.training_config.numerics = "none";
  s.training_config.optimizer = "adamw";
  s.cluster.kernels = "megatron-2021";
  s.distributed_config.tensor_parallel_size = tp;
  s.distributed_config.world_size = tp;
  return s;
}

int64_t peak_of(const Scenario& s) {
  TrainRunOptions options;
  options.look_after_step = [](Trainer& trainer, int64_t) {
    const MemoryUse& use = trainer.context().memory.use();
    return std::vector<double>{static_cast<double>(use.peak)};
  };
  return static_cast<int64_t>(train_in_child(s, options).seen[0][0]);
}

/// Bytes that one layer more keeps, without its state of 18 bytes a parameter.
int64_t kept_by_layer(const std::function<void(Scenario&)>& change, int64_t tp) {
  Scenario four = megatron(4, tp), two = megatron(2, tp);
  change(four);
  change(two);
  const int64_t split = 3 * kH * kH + 3 * kH + kH * kH + 4 * kH * kH + 4 * kH + 4 * kH * kH;
  const int64_t whole = 4 * kH + kH + kH;  // norms, and the biases added after the sum over TP
  return (peak_of(four) - peak_of(two)) / 2 - 18 * (split / tp + whole);
}

/// What the closed forms leave out, as the paper says: fp32 mean and 1/std of two norms for each
/// token a rank has there; and the log-sum-exp that moetwin keeps of each query and head.
int64_t statistics(int64_t tp, bool sequence_parallel) {
  return 4 * kS * kB * (4 / (sequence_parallel ? tp : 1) + kA / tp);
}

}  // namespace

TEST_CASE("activations of a layer with Megatron's kernels: s b h (34 + 5 a s / h)") {
  const int64_t sbh = kS * kB * kH, scores = 5 * kA * kS * kS * kB;
  const auto same = [](Scenario&) {};
  CHECK(kept_by_layer(same, 1) == 34 * sbh + scores + statistics(1, false));
  // TP divides what lies between its communications: s b h (10 + 24 / t + 5 a s / (h t)).
  // (Biases of half a row are no multiple of the allocator's 512 bytes.)
  CHECK(std::abs(kept_by_layer(same, 2) -
                 (10 * sbh + 24 * sbh / 2 + scores / 2 + statistics(2, false))) < 512);
  // Sequence parallelism divides the rest too.
  const auto sequence = [](Scenario& s) { s.distributed_config.sequence_parallel = true; };
  CHECK(std::abs(kept_by_layer(sequence, 2) - (34 * sbh / 2 + scores / 2 + statistics(2, true))) <
        512);
}

TEST_CASE("recomputing attention leaves 34 s b h, recomputing all 2 s b h") {
  const int64_t sbh = kS * kB * kH;
  const auto selective = [](Scenario& s) {
    s.training_config.recompute = "selective";
    s.training_config.recompute_modules = {"attention_core"};
  };
  CHECK(kept_by_layer(selective, 1) == 34 * sbh + 4 * kS * kB * 4);
  CHECK(kept_by_layer([](Scenario& s) { s.training_config.recompute = "full"; }, 1) == 2 * sbh);
}

TEST_CASE("without dropout the masks and what is left of the scores are not kept") {
  const int64_t sbh = kS * kB * kH;
  CHECK(kept_by_layer([](Scenario& s) { s.model_config.dropout = 0; }, 1) ==
        32 * sbh + 2 * kA * kS * kS * kB + statistics(1, false));
  // Flash attention keeps no scores at all.
  CHECK(kept_by_layer([](Scenario& s) { s.cluster.attention = "flash2"; }, 1) ==
        34 * sbh + statistics(1, false));
}
