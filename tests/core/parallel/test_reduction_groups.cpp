// Which ranks' gradients end up in whose sum: filled with 2^rank, a sum names its group exactly.

#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "backends/sim/cluster.h"
#include "core/ops/elementwise.h"
#include "core/train/train.h"
#include "tests/support/in_child.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

Scenario small(int64_t dp, int64_t ep, int64_t experts, int64_t zero) {
  Scenario s;
  s.model_config.hidden_size = 8;
  s.model_config.num_layers = 2;
  s.model_config.num_attention_heads = 2;
  s.model_config.ffn_hidden_size = 8;
  s.model_config.vocab_size = 11;
  s.model_config.sequence_length = 4;
  s.model_config.moe_layer_config.num_experts = experts;
  s.model_config.moe_layer_config.top_k = 1;
  s.model_config.moe_layer_config.expert_hidden_size = 16;
  s.model_config.moe_layer_config.moe_every_k_layers = 2;
  s.model_config.moe_layer_config.shared_expert_hidden_size = 4;
  s.distributed_config.world_size = dp * ep;
  s.distributed_config.data_parallel_size = dp;
  s.distributed_config.expert_parallel_size = ep;
  s.distributed_config.zero_stage = zero;
  s.distributed_config.comm_optimization.gradient_bucket_bytes = 2048;
  s.training_config.global_batch_size = dp * ep;
  s.training_config.steps = 1;
  s.data.format = "synthetic";
  s.cluster.profile = "toy-8gpu";
  s.output.check_access = true;
  return s;
}

struct Entry {
  int64_t rank;
  int32_t expert;  ///< 1: a parameter on the expert grid
  double sum;
};

/// What each rank finds in each parameter it owns after the reduction.
std::vector<Entry> reduced(const Scenario& scenario) {
  return in_child([&] {
    const Grid grid(scenario.distributed_config, scenario.model_config.moe_layer_config.num_experts,
                    scenario.model_config.expert_width());
    std::vector<Entry> entries;
    const auto cluster = make_sim_cluster(scenario, sim_options());
    cluster->run([&](Backend& device) {
      Trainer trainer(device, scenario, grid, {});
      Context& context = trainer.context();
      const int64_t rank = trainer.rank();
      for (FlatGroup& group : trainer.groups()) {
        FillAttr attr;
        attr.value = std::ldexp(1.0, static_cast<int>(rank));
        context.launch(fill(group.gradients(), attr));
      }
      trainer.reducer().finish(context);
      for (FlatGroup& group : trainer.groups()) {
        for (const FlatBucket& bucket : group.buckets()) {
          const int64_t begin = group.own_begin(bucket), count = group.own_count(bucket);
          std::vector<float> values(static_cast<size_t>(count));
          context.to_host(group.gradient(begin, count), values.data(), context.streams.compute);
          for (const FlatPlace& place : group.places())
            for (int64_t i = std::max(begin, place.begin);
                 i < std::min(begin + count, place.begin + place.parameter->elements()); ++i)
              entries.push_back({rank, place.parameter->grid == GridKind::expert,
                                 static_cast<double>(values[static_cast<size_t>(i - begin)])});
        }
      }
    });
    return entries;
  });
}

void check(int64_t dp, int64_t ep, int64_t experts, int64_t zero) {
  INFO("DP=" << dp << " EP=" << ep << " E=" << experts << " zero=" << zero);
  const std::vector<Entry> entries = reduced(small(dp, ep, experts, zero));
  std::map<int32_t, int64_t> seen;
  for (const Entry& e : entries) {
    double expected = 0;
    if (e.expert) {
      // Expert-DP: same place in the EP group, every copy: ranks ep, ep + EP, ep + 2 EP, ...
      for (int64_t copy = 0; copy < dp; ++copy)
        expected += std::ldexp(1.0, static_cast<int>(copy * ep + e.rank % ep));
    } else {
      expected = std::ldexp(1.0, static_cast<int>(dp * ep)) - 1;  // all ranks: 2^W - 1
    }
    if (e.sum != expected)
      FAIL_CHECK("rank " << e.rank << " has " << e.sum << ", not " << expected);
    ++seen[e.expert];
  }
  CHECK(seen[0] > 0);
  CHECK(seen[1] > 0);
}

}  // namespace

TEST_CASE("gradients are summed over exactly the declared group", "[P019][P123]") {
  for (const int64_t zero : {0, 1}) {
    check(1, 1, 4, zero);
    check(4, 2, 4, zero);
    check(2, 4, 8, zero);
    check(8, 2, 8, zero);
    check(1, 8, 8, zero);
    check(8, 1, 2, zero);
    check(2, 4, 2, zero);  // EP > E: hidden sharding 2
    check(3, 2, 6, zero);
  }
}
