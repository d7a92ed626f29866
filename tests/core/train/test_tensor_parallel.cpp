// Tensor parallel, sequence parallel and folding: troubles that users of other frameworks met.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <mutex>
#include <set>

#include "core/ops/elementwise.h"
#include "tests/core/train/small_training.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

struct Place {
  int64_t world, ep, tp, etp;
  bool sequence = false;
};

/// Four sequences a step in micro-batches of one, whatever the layout.
Scenario placed(const Place& c, int64_t steps) {
  Scenario s = small_training(1, 1, 4, 2, steps);
  s.model_config.num_attention_heads = 4;
  s.model_config.sequence_length = 8;
  s.training_config.global_batch_size = 4;
  DistributedConfig& d = s.distributed_config;
  d.world_size = c.world;
  d.expert_parallel_size = c.ep;
  d.tensor_parallel_size = c.tp;
  d.expert_tensor_parallel_size = c.etp;
  d.sequence_parallel = c.sequence;
  d.parallel_folding = true;
  return s;
}

const std::string kRouter = "layers.0.moe.router.weight";

double norm_of(const std::vector<double>& values) {
  double squares = 0;
  for (const double v : values) squares += v * v;
  return std::sqrt(squares);
}

std::vector<double> parameter(Trainer& trainer, const std::string& name) {
  for (const Parameter& p : trainer.parameters().all())
    if (p.name == name) return to_doubles(trainer, p.value);
  throw std::runtime_error("no parameter " + name);
}

}  // namespace

TEST_CASE("balance losses weigh the same under TP", "[P088]") {
  // The part of the router's gradient that comes from the auxiliary and the z loss.
  const auto part = [](const Place& c) {
    Scenario s = placed(c, 1);
    s.model_config.moe_layer_config.aux_loss_factor = 0;
    const auto without = train_in_child(s).gradients.at(kRouter);
    s.model_config.moe_layer_config.aux_loss_factor = 0.05;
    s.model_config.moe_layer_config.z_loss_factor = 0.02;
    auto with = train_in_child(s).gradients.at(kRouter);
    for (size_t i = 0; i < with.size(); ++i) with[i] -= without[i];
    return norm_of(with);
  };
  const double alone = part({1, 1, 1, 1});
  CHECK(alone > 0);
  for (const Place& c : {Place{2, 1, 2, 2}, {2, 2, 2, 1}, {4, 2, 2, 2, true}, {4, 4, 4, 1, true}})
    CHECK(part(c) / alone == Approx(1).epsilon(1e-9));
}

TEST_CASE("replicated weights stay equal on all ranks under sequence parallelism", "[P107]") {
  for (const Place& c : {Place{2, 1, 2, 2, true}, {4, 2, 2, 1, true}, {8, 2, 4, 4, true}}) {
    Scenario s = placed(c, 3);
    s.model_config.qk_norm = true;
    s.routing.noise = {"gaussian", 0.1};
    TrainRunOptions options;
    options.look_after_step = [](Trainer& trainer, int64_t) {
      std::vector<double> all;
      for (const char* name : {"layers.0.moe.router.weight", "layers.1.moe.router.weight",
                               "layers.0.attention_norm.gamma", "layers.1.ffn_norm.beta",
                               "layers.1.attention.q_norm.gamma", "layers.0.attention.out.bias",
                               "embedding.positions", "head.norm.gamma"}) {
        const auto values = parameter(trainer, name);
        all.insert(all.end(), values.begin(), values.end());
      }
      return all;
    };
    const TrainResult result = train_in_child(s, options);
    for (const auto& of_rank : result.seen) CHECK(of_rank == result.seen[0]);  // bit for bit
  }
}

TEST_CASE("the balance bias is the same on all ranks and in all layouts", "[P109]") {
  TrainRunOptions options;
  options.look_after_step = [](Trainer& trainer, int64_t) {
    return to_doubles(trainer, trainer.balance().bias(1));
  };
  const auto biases = [&](const Place& c) {
    Scenario s = placed(c, 3);
    s.model_config.moe_layer_config.bias_update_rate = 0.05;
    s.routing.score_function = "sigmoid";
    return train_in_child(s, options).seen;
  };
  const auto alone = biases({1, 1, 1, 1});
  CHECK(norm_of(alone[0]) > 0);
  for (const Place& c : {Place{2, 1, 2, 2}, {4, 2, 2, 1}, {4, 2, 2, 2, true}, {8, 8, 2, 1}})
    for (const auto& of_rank : biases(c)) CHECK(of_rank == alone[0]);
}

TEST_CASE("every expert is in the norm under EP and TP: 32.4962", "[P115]") {
  // Gradients of 1 in four experts of 2 x 8 x 16 elements and a router of 8 x 4: sqrt(1056).
  for (const int64_t zero : {0, 1})
    for (const Place& c : {Place{1, 1, 1, 1},
                           {4, 2, 2, 2},
                           {4, 2, 2, 1},
                           {2, 1, 2, 2, true},
                           {4, 4, 2, 1, true},
                           {8, 2, 2, 2, true}}) {
      CAPTURE(zero, c.world, c.ep, c.tp, c.etp, c.sequence);
      Scenario s = placed(c, 1);
      s.model_config.moe_layer_config.expert_bias = false;
      s.distributed_config.zero_stage = zero;
      TrainRunOptions options;
      options.look_at_gradients = [](Trainer& trainer, int64_t) {
        FillAttr one;
        one.value = 1;
        for (FlatGroup& group : trainer.groups())
          trainer.context().launch(fill(group.gradients(), {}));
        for (const Parameter& p : trainer.parameters().all())
          if (p.name == kRouter || p.name == "layers.0.moe.experts.w1" ||
              p.name == "layers.0.moe.experts.w2")
            trainer.context().launch(fill(p.gradient, one));
        return std::vector<double>{};
      };
      options.look_after_step = [](Trainer& trainer, int64_t) {
        return std::vector<double>{to_doubles(trainer, trainer.clip_factor())[1]};
      };
      for (const auto& of_rank : train_in_child(s, options).seen)
        CHECK(of_rank.at(0) == Approx(std::sqrt(1056.0)).epsilon(1e-12));
    }
}

TEST_CASE("the norm that clips is that of one rank", "[P119]") {
  const auto norms = [](const Place& c) {
    Scenario s = placed(c, 3);
    s.training_config.max_grad_norm = 0.1;
    return train_in_child(s).gradient_norms;
  };
  const auto alone = norms({1, 1, 1, 1});
  for (const Place& c : {Place{4, 2, 2, 2}, {4, 2, 2, 1}, {4, 4, 2, 1, true}, {4, 2, 2, 2, true}}) {
    const auto got = norms(c);
    REQUIRE(got.size() == alone.size());
    for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(alone[i]).epsilon(1e-9));
  }
}

TEST_CASE("expert gradients carry no factor where ETP differs from TP", "[P126]") {
  const TrainResult alone = train_in_child(placed({1, 1, 1, 1}, 1));
  int64_t mixes = 0;
  for (const int64_t tp : {1, 2, 4})
    for (const int64_t etp : {1, 2, 4})
      for (const int64_t ep : {1, 2, 4, 8}) {
        // 8 ranks; four sequences, so at most four copies of the dense weights.
        if (etp == tp || ep * etp > 8 || 8 / tp > 4) continue;
        CAPTURE(tp, etp, ep);
        ++mixes;
        const TrainResult result = train_in_child(placed({8, ep, tp, etp}, 1));
        for (const char* name :
             {"layers.0.moe.experts.w1", "layers.0.moe.experts.w2", "layers.1.moe.experts.b2",
              "layers.1.moe.router.weight", "layers.0.attention.qkv.weight"})
          CHECK(norm_of(result.gradients.at(name)) / norm_of(alone.gradients.at(name)) ==
                Approx(1).epsilon(1e-9));
      }
  CHECK(mixes == 13);
}

TEST_CASE("recompute and sharded parameters train the same under TP") {
  const auto with_shared = [](const Place& c) {
    Scenario s = placed(c, 3);
    s.model_config.moe_layer_config.shared_expert_hidden_size = 8;
    return s;
  };
  const TrainResult alone = train_in_child(with_shared({1, 1, 1, 1}));
  for (const Place& c : {Place{4, 2, 2, 2}, {4, 4, 2, 1, true}, {8, 2, 2, 2, true}})
    for (const char* recompute : {"none", "full"})
      for (const int64_t zero : {2, 3}) {
        CAPTURE(c.world, c.ep, c.tp, c.etp, c.sequence, recompute, zero);
        Scenario s = with_shared(c);
        s.training_config.recompute = recompute;
        s.distributed_config.zero_stage = zero;
        const TrainResult result = train_in_child(s);
        CHECK(distance(result.gradients, alone.gradients).value <= 1e-9);
        CHECK(distance(result.parameters, alone.parameters).value <= 1e-9);
        CHECK(result.counts == alone.counts);
      }
}

TEST_CASE("weights start equal bit for bit, split or not") {
  const auto first_weights = [](const Place& c) {
    Scenario s = placed(c, 1);
    s.training_config.learning_rate = 0;
    return train_in_child(s).parameters;
  };
  const GlobalTensors alone = first_weights({1, 1, 1, 1});
  for (const Place& c : {Place{4, 2, 4, 1}, {4, 2, 2, 2, true}}) CHECK(first_weights(c) == alone);
}

TEST_CASE("the imbalance of ranks where the slices of a TP group go to two copies of the experts") {
  // TP 4 and EP 2 with whole experts: ranks {0,1} exchange the first two quarters of the tokens of
  // each micro-batch, ranks {2,3} the others.
  const Scenario s = placed({4, 2, 4, 1}, 1);
  std::mutex mutex;
  std::map<int64_t, std::vector<double>> received;  // by layer and rank
  TrainRunOptions options;
  options.look_at_rank = [&](const RankStep& step) {
    const std::lock_guard lock(mutex);
    for (const auto& [layer, rows] : step.received) {
      received[layer].resize(4);
      received[layer][static_cast<size_t>(step.rank)] = static_cast<double>(rows);
    }
  };
  options.look_at_row = [&](const StepRow& row) {
    std::vector<double> numbers;
    for (const LayerRow& layer : row.layers) {
      const std::vector<double>& of_layer = received.at(layer.layer);
      numbers.push_back(layer.metrics.imbalance_ranks);
      numbers.insert(numbers.end(), of_layer.begin(), of_layer.end());
    }
    return numbers;
  };
  const std::vector<double> rows = train_in_child(s, options).rows;
  REQUIRE(rows.size() == 2 * 5);
  for (size_t l = 0; l < 2; ++l) {
    const double* of_layer = rows.data() + 5 * l + 1;
    const double each = 4 * 8 / 2 * 2;  // four sequences, half of eight tokens, two choices
    CHECK(of_layer[0] + of_layer[1] == each);
    CHECK(of_layer[2] + of_layer[3] == each);
    CHECK(rows[5 * l] == Approx(*std::max_element(of_layer, of_layer + 4) / (each / 2)));
  }
}
