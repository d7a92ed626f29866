#pragma once
// A run that never was: steps of every rank, made by arithmetic.

#include <algorithm>
#include <cmath>

#include "core/record/recorder.h"
#include "tests/core/topology/sizes_of.h"

namespace moetwin::test {

struct MadeUp {
  int64_t world = 4, ep = 2, experts = 4, tokens_per_rank = 64, layers = 2;
  Scenario scenario;

  MadeUp() { set(); }
  MadeUp(int64_t world, int64_t ep, int64_t experts, int64_t layers)
      : world(world), ep(ep), experts(experts), layers(layers) {
    set();
  }
  Grid grid() const {
    return Grid(scenario.distributed_config, experts, scenario.model_config.expert_width());
  }

  /// Rank r in step s: [s-1, s) seconds; compute 0.5 (forward 0.2, backward 0.3), an all-to-all of
  /// 0.25 of which 0.05 are under compute, a fifth of rank r's own idle at the end.
  RankStep step(int64_t rank, int64_t number) const {
    RankStep out;
    out.rank = rank;
    out.step = number;
    const auto start = static_cast<double>(number - 1);
    out.start = start, out.end = start + 1;
    out.ce_sum = static_cast<double>(tokens_per_rank) * loss(number);
    out.valid_tokens = tokens_per_rank;
    for (int64_t l = 0; l < layers; ++l) {
      LayerStep layer;
      layer.layer = 2 * l + 1;
      layer.tokens = tokens_per_rank;
      layer.aux = 1.1 / static_cast<double>(world);
      layer.z = 0.5 / static_cast<double>(world);
      for (int64_t e = 0; e < experts; ++e) {
        // 2 tokens_per_rank choices; expert 0 has 1.5 times its share, the last 0.5 times.
        const double share = e == 0 ? 1.5 : e == experts - 1 ? 0.5 : 1.0;
        layer.counts.push_back(std::llround(share * 2 * static_cast<double>(tokens_per_rank) /
                                            static_cast<double>(experts)));
        layer.probability.push_back(share * static_cast<double>(tokens_per_rank) /
                                    static_cast<double>(experts));
      }
      out.layers.push_back(layer);
    }
    const auto add = [&](double from, double to, Activity activity, Phase phase, int32_t stream,
                         const char* name, const char* group) {
      Interval i;
      i.start = start + from, i.end = start + to, i.activity = activity, i.phase = phase;
      i.stream = stream, i.name = name, i.group = group, i.bytes = 1000;
      i.order = static_cast<int64_t>(out.profile.intervals.size());
      out.profile.intervals.push_back(i);
    };
    add(0.0, 0.2, Activity::compute, Phase::forward, 0, "gemm", "");
    add(0.2, 0.5, Activity::compute, Phase::backward, 0, "gemm", "");
    add(0.45, 0.7, Activity::all_to_all, Phase::backward, 1, "all_to_all_v", "ep");
    add(0.0, 0.8, Activity::host, Phase::other, -1, "", "");
    out.profile.traffic = {
        {"all_to_all_v", "dispatch", "ep", "pairs, Simple", 2, 2, 1000 + rank, 100},
        {"all_reduce", "gradients", "dense_dp", "", 4, 1, 500, 0}};
    out.memory.peak = (1 << 20) * (10 + rank);
    out.memory.bytes_at_peak[0] = out.memory.peak;
    out.host_syncs = 4;
    out.grad_norm = 0.5, out.learning_rate = 1e-3;
    return out;
  }
  /// 5 nats falling by 0.1 a step.
  static double loss(int64_t number) { return 5 - 0.1 * static_cast<double>(number); }

  RunInfo info(const std::string& directory) const {
    RunInfo run;
    run.directory = directory;
    run.backend = "sim";
    run.cluster = "dgx-a100-80g: 1 node of 8, NVLink 300 GB/s, fluid network";
    run.device.name = "A100-SXM4-80GB (modelled)";
    run.device.memory_bytes = int64_t{80} << 30;
    run.device.peak_flop_per_second = 19.5e12;
    run.device.peak_source = "NVIDIA A100 data sheet, FP32";
    return run;
  }
  void run(Recorder& recorder, int64_t first, int64_t last) const {
    for (int64_t s = first; s <= last; ++s)
      for (int64_t r = 0; r < world; ++r) recorder.add(step(r, s));
  }

 private:
  void set() {
    scenario.name = "made-up";
    scenario.distributed_config = sizes_of({.world = world, .dp = world / ep, .ep = ep});
    scenario.model_config.num_layers = 2 * layers;
    scenario.model_config.sequence_length = tokens_per_rank;
    scenario.model_config.moe_layer_config.num_experts = experts;
    scenario.model_config.moe_layer_config.moe_every_k_layers = 2;
    scenario.training_config.global_batch_size = world;
    scenario.training_config.steps = 10;
    scenario.training_config.warmup_steps_excluded = 2;
  }
};

}  // namespace moetwin::test
