// The gain that is predicted for a cure is the gain that the cluster, simulated in full, has.

#include <catch2/catch.hpp>
#include <cmath>

#include "analysis/rebalancing/cures.h"
#include "cli/estimates.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

/// 16 experts of 4,096 x 8,192 in bf16 on the 8 GPUs of a DGX A100; no numbers, one step's load.
Scenario skewed(const std::string& source) {
  Scenario s;
  s.name = "skewed";
  ModelConfig& m = s.model_config;
  m.hidden_size = 2048;
  m.num_layers = 2;
  m.num_attention_heads = 16;
  m.vocab_size = 8192;
  m.sequence_length = 2048;
  m.moe_layer_config.num_experts = 16;
  m.moe_layer_config.top_k = 2;
  m.moe_layer_config.expert_hidden_size = 8192;
  DistributedConfig& d = s.distributed_config;
  d.world_size = d.expert_parallel_size = 8;
  TrainingConfig& t = s.training_config;
  t.numerics = "none";
  t.dtype = "bf16";
  t.micro_batch_size = 4;
  t.global_batch_size = 64;  // two micro-batches a rank
  t.validation_sequences = 0;
  s.routing.source = source;
  s.routing.workload.hot_fraction = 0.5;
  s.routing.workload.max_violation = 2;
  s.rebalancing.interval_steps = 1;
  s.rebalancing.network_bytes_per_second = 2e11;  // NVLink
  s.memory.on_exceed = "report";
  return s;
}

double simulated(Scenario s) {
  s.training_config.steps = 3;
  TrainRunOptions options;
  options.tensors = options.check_access = options.poison = false;
  return train_in_child(s, options).step_seconds.back();
}

}  // namespace

TEST_CASE("cures: predicted and simulated gain are the same within 2% of the step") {
  const EstimateStep estimate =
      estimates(read_cluster_profile("dgx-a100-80g", {MOETWIN_SOURCE_SCENARIOS "/clusters"}));
  for (const char* source : {"W1", "W8"}) {
    const Scenario plain = skewed(source);
    const double before = simulated(plain);
    const std::vector<Cure> cures = predict_cures({plain}, before, estimate);
    REQUIRE(cures.size() == 5);
    CHECK(cures.front().gain > 0.1);
    for (const Cure& cure : cures) {
      Scenario cured = plain;
      cured.rebalancing = cure.rebalancing;
      const double after = simulated(cured);
      CAPTURE(source, cure.name, before, after, cure.step_seconds, cure.gain, 1 - after / before);
      // Of the step without a cure.
      CHECK(std::abs(cure.gain - (1 - after / before)) <= 0.02);
      CHECK(cure.step_seconds == Approx(after).epsilon(0.04));
    }
  }
}

TEST_CASE("cures: what is possible") {
  Scenario s = skewed("W1");
  CHECK(possible_cures(s).size() == 5);
  s.distributed_config.tensor_parallel_size = 2;  // splits experts too
  s.distributed_config.world_size = 16;
  CHECK(possible_cures(s).empty());
  s = skewed("W1");
  s.distributed_config.expert_parallel_size = 1;
  s.distributed_config.data_parallel_size = 8;
  CHECK(possible_cures(s).empty());
}
