// Bytes a rank keeps and its peak, against closed forms: 18 bytes a parameter, 6 + 12/DP with the
// distributed optimizer (Megatron-Core's estimator), 16/DP and what is gathered with FSDP.

#include <algorithm>
#include <catch2/catch.hpp>

#include "core/scenario/model_size.h"
#include "tests/core/train/small_training.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

/// The allocator's grain.
int64_t grain(int64_t bytes) { return (bytes + 511) / 512 * 512; }

// Sizes that are multiples of 32 x 4, so that flat buffers need no padding.
Scenario model(int64_t experts, int64_t dp, int64_t ep) {
  Scenario s = small_training(dp, ep, std::max<int64_t>(experts, 1), 1, 1);
  ModelConfig& m = s.model_config;
  m.moe_layer_config.num_experts = experts;
  m.hidden_size = 128;
  m.num_attention_heads = 2;
  m.ffn_hidden_size = 512;
  m.moe_layer_config.expert_hidden_size = 512;
  m.num_layers = 8;
  m.vocab_size = 1024;
  m.sequence_length = 128;
  m.tie_embeddings = false;  // a tied table is at work from the first layer to the last
  s.training_config.dtype = "bf16";
  s.training_config.numerics = "none";
  s.training_config.optimizer = "adamw";
  s.routing.source = "uniform";
  return s;
}

struct Memory {
  int64_t parameters, gradients, optimizer, peak;
};

Memory memory_of(const Scenario& s) {
  TrainRunOptions options;
  options.look_after_step = [](Trainer& trainer, int64_t) {
    const MemoryUse& use = trainer.context().memory.use();
    const auto of = [&](MemoryClass c) {
      return static_cast<double>(use.bytes[static_cast<size_t>(c)]);
    };
    return std::vector<double>{of(MemoryClass::parameters), of(MemoryClass::gradients),
                               of(MemoryClass::optimizer), static_cast<double>(use.peak)};
  };
  const std::vector<double> seen = train_in_child(s, options).seen[0];
  return {static_cast<int64_t>(seen[0]), static_cast<int64_t>(seen[1]),
          static_cast<int64_t>(seen[2]), static_cast<int64_t>(seen[3])};
}

}  // namespace

TEST_CASE("state of a dense model: 18, 6 + 12/DP and 16/DP bytes a parameter") {
  Scenario s = model(0, 4, 1);
  const int64_t h = 128, f = 512, layers = 8;
  // Per layer: two norms, qkv and output projections, FFN; then embedding and positions; last norm
  // and head.
  const int64_t layer = 4 * h + (3 * h * h + 3 * h) + (h * h + h) + (h * f + f) + (f * h + h);
  const int64_t embedding = 1024 * h + 128 * h, head = 1024 * h + 2 * h;
  const int64_t n = layers * layer + embedding + head;
  REQUIRE(n == model_parameters(s).total());

  const Memory whole = memory_of(s);
  CHECK(whole.parameters == 2 * n);
  CHECK(whole.gradients == 4 * n);
  CHECK(whole.optimizer == 12 * n);  // 18 n in all

  s.distributed_config.zero_stage = 1;
  const Memory optimizer = memory_of(s);
  CHECK(optimizer.parameters + optimizer.gradients == 6 * n);
  CHECK(optimizer.optimizer == 3 * grain(4 * n / 4));
  // Nothing else changes, so the peak falls by three quarters of the optimizer's state.
  CHECK(whole.peak - optimizer.peak == 12 * n - 3 * grain(4 * n / 4));

  s.distributed_config.zero_stage = 3;
  const Memory all = memory_of(s);
  CHECK(all.parameters == 0);  // made from the masters when they are gathered
  CHECK(all.gradients == grain(4 * n / 4));
  CHECK(all.optimizer == 3 * grain(4 * n / 4));
  // At the peak the layer at work and the one gathered ahead are there, with the gradients of one
  // and of one under reduction: at most 2 x (2 + 4) bytes of the largest unit, at least one unit.
  const int64_t largest = std::max({layer, embedding, head});
  const int64_t without_units = whole.peak - (18 * n - 4 * grain(4 * n / 4));
  CHECK(all.peak <= without_units + 2 * 6 * largest);
  CHECK(all.peak > without_units);

  s.distributed_config.zero_stage = 2;
  const Memory gradients = memory_of(s);
  CHECK(gradients.gradients == all.gradients);
  CHECK(gradients.optimizer == all.optimizer);
  // Gathered parameters stay from forward to backward: all 2 n bytes are there at the turn.
  CHECK(gradients.peak >= without_units + 2 * n);
  CHECK(gradients.peak <= without_units + 2 * n + 2 * 4 * largest);
}

TEST_CASE("offloaded state is in host memory and its copies take their time") {
  Scenario s = model(0, 4, 1);
  s.distributed_config.zero_stage = 3;
  const Memory device = memory_of(s);
  s.distributed_config.fsdp.cpu_offload = true;
  TrainRunOptions options;
  options.look_after_step = [](Trainer& trainer, int64_t) {
    const MemoryUse& use = trainer.context().memory.use();
    return std::vector<double>{
        static_cast<double>(use.bytes[static_cast<size_t>(MemoryClass::optimizer)]),
        static_cast<double>(use.host), static_cast<double>(use.peak)};
  };
  options.look_at_row = [](const StepRow& row) {
    return std::vector<double>{row.parts[Part::offload], static_cast<double>(row.host_syncs)};
  };
  options.change_profile = [](ClusterProfile& profile) {
    profile.pcie.bandwidth = BytesPerSecond(1e9);
    profile.pcie.efficiency = 1;
    profile.pcie.latency = Seconds(0);
  };
  const TrainResult result = train_in_child(s, options);
  const int64_t n = model_parameters(s).total();
  CHECK(result.seen[0][0] == 0);
  CHECK(result.seen[0][1] == 12.0 * static_cast<double>(n) / 4);
  // 12 bytes of state a parameter less; a unit's share, and while it is gathered, come back.
  CHECK(result.seen[0][2] <= static_cast<double>(device.peak - 12 * n / 4 + 4 * n / 4));
  // In the update 12 bytes a parameter go both ways, for which nothing else is done; gathers bring
  // 4 more bytes twice, beside compute.
  const double pcie = 24.0 * static_cast<double>(n) / 4 / 1e9;
  CHECK(result.rows[0] >= 0.9 * pcie);
  CHECK(result.rows[0] <= pcie + 2 * 4.0 * static_cast<double>(n) / 4 / 1e9 + 1e-3);
}

TEST_CASE("experts are shared over their own copies") {
  // DP 2 x EP 2: dense state over four ranks, experts over two.
  Scenario s = model(4, 2, 2);
  s.distributed_config.zero_stage = 3;
  const ParallelSizes sizes = parallel_sizes(s.distributed_config, 4);
  const ParameterCount rank = rank_parameters(s, sizes, 0, 0);
  // Scripted routers have no weights, so all parameters are bf16 with fp32 masters.
  const Memory memory = memory_of(s);
  CHECK(memory.parameters == 0);
  const int64_t kept = grain(4 * rank.dense() / 4) + grain(4 * rank.expert / 2);
  CHECK(memory.gradients == kept);
  CHECK(memory.optimizer == 3 * kept);
}

TEST_CASE("fewer layers in flight, less memory") {
  Scenario s = model(0, 4, 1);
  s.distributed_config.zero_stage = 3;
  s.model_config.num_layers = 8;
  FsdpConfig& fsdp = s.distributed_config.fsdp;
  fsdp.limit_all_gathers = 4;
  const int64_t four = memory_of(s).peak;
  fsdp.limit_all_gathers = 1;
  const int64_t one = memory_of(s).peak;
  const int64_t h = 128, f = 512;
  const int64_t layer = 4 * h + (3 * h * h + 3 * h) + (h * h + h) + (h * f + f) + (f * h + h);
  const int64_t head = 1024 * h + 2 * h;
  // The peak is in the backward of the last layer: with four the head's bf16 parameters are not
  // gone yet, and those of the two layers below are still there from the forward.
  CHECK(four - one == 2 * grain(2 * layer) + grain(2 * head));
}

namespace {

/// Per step: seconds, then bytes and bytes off the node of parameters, then of gradients.
std::vector<double> sent_by(const Scenario& s, int64_t gpus_per_node = 8) {
  TrainRunOptions options;
  options.look_at_row = [](const StepRow& row) {
    std::vector<double> numbers{row.seconds()};
    for (const char* purpose : {"parameters", "dense gradients"}) {
      const auto found = row.by_purpose.find(purpose);
      const SentBytes sent = found == row.by_purpose.end() ? SentBytes{} : found->second;
      numbers.push_back(static_cast<double>(sent.bytes));
      numbers.push_back(static_cast<double>(sent.off_node));
    }
    return numbers;
  };
  options.change_profile = [gpus_per_node](ClusterProfile& profile) {
    profile.gpus_per_node = profile.nics_per_node = gpus_per_node;
  };
  return train_in_child(s, options).rows;
}

}  // namespace

TEST_CASE("what sharding sends: each unit gathered once or twice, gradients scattered once") {
  Scenario s = model(0, 4, 1);
  const auto n = static_cast<double>(model_parameters(s).total());
  const double h = 128, f = 512;
  const double layer = 4 * h + (3 * h * h + 3 * h) + (h * h + h) + (h * f + f) + (f * h + h);
  // A gather or scatter over 4 ranks sends each rank's quarter to 3 others: 3 whole copies in all.
  s.distributed_config.zero_stage = 2;
  const std::vector<double> once = sent_by(s);
  CHECK(once[1] == 3 * 2 * n);
  CHECK(once[3] == 3 * 4 * n);
  // Head and last two layers are still there when their backward begins; the embedding has no use
  // for its table in the backward.
  s.distributed_config.zero_stage = 3;
  const std::vector<double> twice = sent_by(s);
  CHECK(twice[1] >= 3 * 2 * (n + 6 * layer));
  CHECK(twice[1] <= 3 * 2 * (n + 8 * layer));
  CHECK(twice[3] == 3 * 4 * n);
  // Inside nodes of two: parameters stay there, and only shares of gradients leave.
  s.distributed_config.zero_stage = 0;
  s.distributed_config.fsdp.sharding_strategy = "_HYBRID_SHARD_ZERO2";
  const std::vector<double> hybrid = sent_by(s, 2);
  CHECK(hybrid[1] == 2 * 1 * 2 * n);  // two nodes, one copy each
  CHECK(hybrid[2] == 0);
  // Scatter: one copy in each of two nodes. The sum over two copies of a half: two whole halves,
  // twice.
  CHECK(hybrid[3] == 2 * 1 * 4 * n + 2 * 2 * 4 * n / 2);
  CHECK(hybrid[4] == 2 * 2 * 4 * n / 2);
}

TEST_CASE("gathering ahead hides gathers behind compute") {
  Scenario s = model(0, 4, 1);
  s.distributed_config.zero_stage = 3;
  FsdpConfig& fsdp = s.distributed_config.fsdp;
  const double ahead = sent_by(s)[0];
  fsdp.forward_prefetch = false;
  fsdp.backward_prefetch = "none";
  fsdp.limit_all_gathers = 1;
  const double in_line = sent_by(s)[0];
  // Nothing runs beside a gather then. One layer's gather over 4 ranks: 3/4 of its bf16 bytes over
  // 10 GB/s; of 16 passes all but the first and the last two in a row could have been hidden.
  const double h = 128, f = 512;
  const double layer = 4 * h + (3 * h * h + 3 * h) + (h * h + h) + (h * f + f) + (f * h + h);
  const double gather = 0.75 * 2 * layer / 10e9;
  CHECK(in_line - ahead > 8 * gather);
  CHECK(in_line - ahead < 20 * (gather + 1e-5));
}
