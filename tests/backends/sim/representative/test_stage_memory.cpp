// Memory of a stage against the closed forms of Korthikanti et al. (2022) and of ZeRO.
#include <catch2/catch.hpp>

#include "backends/sim/representative/estimate.h"
#include "core/ops/isa.h"

using namespace moetwin;

namespace {

/// GPT of Megatron-LM in fp16, dropout 0.1, on DGX A100.
Scenario gpt(double layers, double hidden, double heads, int64_t tp, int64_t pp, int64_t dp,
             int64_t micro_batch, int64_t micro_batches) {
  Scenario s;
  s.cluster.kernels = "megatron-2021";
  s.cluster.profile = "dgx-a100-80g";
  ModelConfig& m = s.model_config;
  m.num_layers = static_cast<int64_t>(layers);
  m.hidden_size = static_cast<int64_t>(hidden);
  m.num_attention_heads = static_cast<int64_t>(heads);
  m.vocab_size = 51200;
  m.sequence_length = 2048;
  m.activation = "gelu_tanh";
  m.dropout = 0.1;
  DistributedConfig& d = s.distributed_config;
  d.tensor_parallel_size = tp;
  d.pipeline_parallel_size = pp;
  d.data_parallel_size = dp;
  d.world_size = tp * pp * dp;
  s.training_config.dtype = "fp16";
  s.training_config.numerics = "none";
  s.training_config.micro_batch_size = micro_batch;
  s.training_config.global_batch_size = micro_batch * micro_batches * dp;
  s.memory.on_exceed = "report";
  return s;
}

StageEstimate first_stage(const Scenario& s) {
  Estimator estimator(read_cluster_profile(s.cluster.profile, {TEST_CLUSTERS}),
                      [isa = best_isa()](const Op& op) { return reference_of(op, isa); });
  return estimator.estimate(s).stages.front();
}

double states(const StageEstimate& stage) {
  double sum = 0;
  for (const MemoryClass c :
       {MemoryClass::parameters, MemoryClass::gradients, MemoryClass::optimizer})
    sum += static_cast<double>(stage.lasting[static_cast<size_t>(c)]);
  return sum;
}

constexpr double kGiB = 1024.0 * 1024 * 1024;

}  // namespace

TEST_CASE(
    "the first stage of 22B, TP 8: s b h L (10 + 24/t + 5 a s / (h t)), 18 bytes a parameter") {
  const double s = 2048, b = 4, h = 6144, a = 64, l = 48, t = 8, v = 51200;
  Scenario scenario = gpt(l, h, a, 8, 1, 1, 4, 1);
  const double sbh = s * b * h;
  // Beside the paper's: the head's logits, in place of which their gradient is, and its norm's
  // input and output.
  const double logits = s * b * v / t * 2, head = logits + 4 * sbh;
  const StageEstimate none = first_stage(scenario);
  CHECK(static_cast<double>(none.kept_bytes) ==
        Approx(sbh * l * (10 + 24 / t + 5 * a * s / (h * t)) + head).epsilon(0.005));
  CHECK(static_cast<double>(none.kept_bytes) / kGiB == Approx(59.25).epsilon(0.02));  // figure 7
  scenario.training_config.recompute = "selective";
  scenario.training_config.recompute_modules = {"attention_core"};
  scenario.distributed_config.sequence_parallel = true;
  CHECK(static_cast<double>(first_stage(scenario).kept_bytes) ==
        Approx(sbh * l * 34 / t + logits + 4 * sbh / t).epsilon(0.005));
  // 12 h^2 of a layer and the two tables, over TP; norms and positions are below 0.5%.
  const double parameters = (12 * h * h * l + v * h) / t;
  CHECK(states(none) == Approx(18 * parameters).epsilon(0.01));
}

TEST_CASE("as many micro-batches wait as there are stages; interleaved ones a share more") {
  // 175B with 8 stages and 64 micro-batches.
  const double s = 2048, h = 12288, a = 96, l = 96, t = 8, p = 8;
  const double kept = s * h * l * (10 + 24 / t + 5 * a * s / (h * t));
  Scenario scenario = gpt(l, h, a, 8, 8, 1, 1, 64);
  CHECK(static_cast<double>(first_stage(scenario).kept_bytes) == Approx(kept).epsilon(0.02));
  scenario.distributed_config.pipeline_schedule = "interleaved_1f1b";
  scenario.distributed_config.virtual_pipeline_size = 3;
  // Korthikanti et al.: 1 + (p - 1) / (p m) of it, 66.84 GiB.
  const double interleaved = kept * (1 + (p - 1) / (p * 3));
  CHECK(static_cast<double>(first_stage(scenario).kept_bytes) == Approx(interleaved).epsilon(0.03));
  CHECK(interleaved / kGiB == Approx(66.84).epsilon(0.001));
}

TEST_CASE("a distributed optimizer keeps 6 + 12 / DP bytes a parameter") {
  const double h = 1024, l = 4, v = 51200;
  const double parameters = 12 * h * h * l + v * h + 2048 * h;
  Scenario scenario = gpt(l, h, 16, 1, 1, 8, 1, 1);
  scenario.distributed_config.zero_stage = 1;
  CHECK(states(first_stage(scenario)) == Approx((6 + 12.0 / 8) * parameters).epsilon(0.01));
  scenario.distributed_config.zero_stage = 0;
  CHECK(states(first_stage(scenario)) == Approx(18 * parameters).epsilon(0.01));
}
