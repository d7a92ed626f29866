// Experts in several places of a cluster: who holds which, who takes part in what, and that what is
// trained does not depend on it.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "tests/core/train/small_training.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

using Sums = std::map<std::string, uint64_t>;

/// Checksums of expert tensors alone.
Sums experts_of(const Sums& all) {
  Sums some;
  for (const auto& [name, hash] : all)
    if (name.find(".experts.") != std::string::npos) some[name] = hash;
  return some;
}

/// The same global batch and micro-batches on one rank.
Scenario on_one_rank(Scenario s) {
  s.distributed_config.world_size = s.distributed_config.data_parallel_size =
      s.distributed_config.expert_parallel_size = 1;
  return s;
}

/// Traffic of this rank since the last look: collectives by what they are for.
TrainRunOptions::Look count_calls(std::vector<std::string> purposes) {
  return [purposes = std::move(purposes)](Trainer& trainer, int64_t) {
    Context& context = trainer.context();
    for (const Stream stream :
         {context.streams.compute, context.streams.dispatch, context.streams.reduction})
      context.device.synchronize(stream);
    std::vector<double> calls(purposes.size() + 1, 0.0);
    for (const Traffic& t : context.device.take_profile(false).traffic) {
      for (size_t i = 0; i < purposes.size(); ++i)
        if (t.purpose == purposes[i]) calls[i] += static_cast<double>(t.calls);
      calls.back() += static_cast<double>(t.calls);
    }
    return calls;
  };
}

const std::vector<std::string> kExchange{"expert counts", "dispatch", "combine", "combine backward",
                                         "dispatch backward"};

double ratio_of_norms(const GlobalTensors& a, const GlobalTensors& b, const std::string& part) {
  double x = 0, y = 0;
  for (const auto& [name, values] : a) {
    if (name.find(part) == std::string::npos) continue;
    for (const double v : values) x += v * v;
    for (const double v : b.at(name)) y += v * v;
  }
  return std::sqrt(x / y);
}

}  // namespace

TEST_CASE("eight ranks, four experts: ranks 0 and 4 keep the same expert in step", "[P017]") {
  const TrainResult result = train_in_child(small_training(2, 4, 4, 2, 3));
  REQUIRE(result.checksums.size() == 8);
  std::set<Sums> distinct;
  for (size_t r = 0; r < 4; ++r) {
    const Sums own = experts_of(result.checksums[r]);
    CHECK(own.size() == 2 * 4);  // w1, b1, w2, b2 of one expert in two layers
    CHECK(own == experts_of(result.checksums[r + 4]));
    distinct.insert(own);
  }
  CHECK(distinct.size() == 4);
}

TEST_CASE("four copies of each expert: equal after a step, gradients of all ranks' tokens",
          "[P019]") {
  const Scenario s = small_training(4, 4, 4, 2, 1);
  const TrainResult result = train_in_child(s), one = train_in_child(on_one_rank(s));
  for (size_t r = 0; r < 16; ++r)
    CHECK(experts_of(result.checksums[r]) == experts_of(result.checksums[r % 4]));
  CHECK(distance(result.gradients, one.gradients).value <= 1e-9);
  CHECK(distance(result.parameters, one.parameters).value <= 1e-9);
}

TEST_CASE("more EP ranks than experts: hidden sharding trains what one rank trains", "[P021]") {
  Scenario s = small_training(1, 4, 2, 1, 3);
  s.model_config.moe_layer_config.expert_hidden_size = 128;  // 64 on each hidden row
  const TrainResult result = train_in_child(s), one = train_in_child(on_one_rank(s));
  CHECK(distance(result.gradients, one.gradients).value <= 1e-9);
  CHECK(distance(result.parameters, one.parameters).value <= 1e-9);
}

TEST_CASE("poisoned memory: three finite steps, gradients as without EP", "[P026]") {
  Scenario s = small_training(1, 2, 4, 2, 3);
  s.training_config.dtype = "fp32";
  const TrainResult result = train_in_child(s), one = train_in_child(on_one_rank(s));
  REQUIRE(result.losses.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(std::isfinite(result.losses[i]));
    CHECK(std::isfinite(result.gradient_norms[i]));
    CHECK(result.losses[i] == Approx(one.losses[i]).epsilon(1e-5));
  }
  CHECK(distance(result.gradients, one.gradients).value <= 1e-5);
}

TEST_CASE("ranks that use other experts still reduce every one, a hundred times", "[P027]") {
  // Rank 0 uses expert 0 only, rank 1 expert 1 only; both copies of both experts stay equal.
  const TemporaryDirectory dir;
  std::string rows = "step,layer,rank,expert,assigned,kept\n";
  for (const char* layer : {"0", "1"})
    for (const char* row : {"all,0,6,6", "all,1,6,6", "0,0,6,6", "0,1,0,0", "1,0,0,0", "1,1,6,6"})
      rows += std::string("1,") + layer + "," + row + "\n";
  Scenario s = small_training(2, 1, 2, 1, 100);
  s.routing.source = "trace";
  s.routing.trace_file = dir.write("routing.csv", rows);
  s.distributed_config.zero_stage = 1;
  s.training_config.optimizer = "adamw";
  s.training_config.learning_rate = 1e-3;
  TrainRunOptions options;
  options.look_at_gradients = count_calls({"expert gradients"});
  const TrainResult result = train_in_child(s, options);
  CHECK(result.losses.size() == 100);
  CHECK(result.counts[0] == std::vector<int64_t>{6, 6, 6, 6});
  CHECK(result.checksums[0] == result.checksums[1]);
  CHECK(result.seen[0] == result.seen[1]);
  REQUIRE(result.seen[0].size() == 200);
  for (size_t i = 2; i < 200; i += 2) CHECK(result.seen[0][i] == result.seen[0][2]);
  CHECK(result.seen[0][2] > 0);
}

TEST_CASE("an EP rank whose experts get nothing joins every collective", "[P029]") {
  Scenario s = small_training(1, 4, 4, 2, 3);
  s.routing.source = "W5";  // the last expert, so the last rank, gets nothing
  s.routing.workload.zero_experts = 1;
  TrainRunOptions options;
  options.look_at_gradients = count_calls(kExchange);
  const TrainResult result = train_in_child(s, options);
  CHECK(result.counts.back() == std::vector<int64_t>{16, 16, 16, 0, 16, 16, 16, 0});
  for (size_t r = 1; r < 4; ++r) CHECK(result.seen[r] == result.seen[0]);
  // Of a later step: counts, tokens there and back, and their gradients, in two layers.
  REQUIRE(result.seen[0].size() == 3 * 6);
  for (size_t i = 12; i < 17; ++i) CHECK(result.seen[0][i] == 2);
  // The unused experts have gradients, of zeros.
  const std::vector<double>& w1 = result.gradients.at("layers.0.moe.experts.w1");
  const auto quarter = static_cast<std::ptrdiff_t>(w1.size() / 4);
  CHECK(std::all_of(w1.end() - quarter, w1.end(), [](double g) { return g == 0; }));
  CHECK(std::any_of(w1.begin(), w1.end(), [](double g) { return g != 0; }));
}

TEST_CASE("experts start different from each other, and the same in every layout", "[P110]") {
  Scenario s = small_training(1, 4, 4, 1, 1);
  s.training_config.learning_rate = 0;  // what they start from
  const TrainResult result = train_in_child(s), one = train_in_child(on_one_rank(s));
  CHECK(result.parameters == one.parameters);
  std::set<uint64_t> w1;
  for (const Sums& of_rank : result.checksums)
    for (const auto& [name, hash] : of_rank)
      if (name.rfind("layers.0.moe.experts.w1", 0) == 0) w1.insert(hash);
  CHECK(w1.size() == 4);
}

TEST_CASE("gradients of experts carry no factor of EP or DP", "[P123][P124]") {
  // SGD, since Adam would hide a constant factor.
  Scenario s = small_training(4, 1, 4, 2, 1);
  s.training_config.learning_rate = 1;
  const TrainResult plain = train_in_child(s);
  for (const int64_t ep : {2, 4}) {
    s.distributed_config.expert_parallel_size = ep;
    s.distributed_config.data_parallel_size = 4 / ep;
    const TrainResult result = train_in_child(s);
    CHECK(ratio_of_norms(result.gradients, plain.gradients, ".experts.") ==
          Approx(1).epsilon(1e-9));
    CHECK(ratio_of_norms(result.gradients, plain.gradients, ".router.") == Approx(1).epsilon(1e-9));
    CHECK(distance(result.gradients, plain.gradients).value <= 1e-9);
    CHECK(distance(result.parameters, plain.parameters).value <= 1e-9);
  }
  s.training_config.dtype = "fp32";
  const TrainResult narrow = train_in_child(s);
  CHECK(distance(narrow.parameters, plain.parameters).value <= 1e-6);
}

TEST_CASE("two nodes of one GPU: every dispatched byte leaves the node", "[P015]") {
  Scenario s = small_training(1, 2, 4, 2, 1);
  TrainRunOptions options;
  options.change_profile = [](ClusterProfile& profile) {
    profile.gpus_per_node = profile.nics_per_node = 1;
  };
  options.look_at_row = [](const StepRow& row) {
    const SentBytes& all = row.traffic.at("all_to_all");
    return std::vector<double>{static_cast<double>(all.bytes), static_cast<double>(all.off_node)};
  };
  const TrainResult split = train_in_child(s, options);
  CHECK(split.rows[0] > 0);
  CHECK(split.rows[1] == split.rows[0]);
  options.change_profile = nullptr;
  const TrainResult together = train_in_child(s, options);
  CHECK(together.rows[0] == split.rows[0]);
  CHECK(together.rows[1] == 0);
}

TEST_CASE("a training has the same bits on one and on two threads", "[P174][P171]") {
  Scenario s = small_training(2, 2, 4, 2, 3);
  s.training_config.dtype = "fp32";
  s.training_config.optimizer = "adamw";
  s.routing.jitter_epsilon = 0.01;
  s.routing.noise = {"gaussian", 0.1};
  s.model_config.dropout = 0.1;
  TrainRunOptions two;
  two.threads = 2;
  const TrainResult a = train_in_child(s), b = train_in_child(s, two), c = train_in_child(s, two);
  CHECK(a.checksums == b.checksums);
  CHECK(b.checksums == c.checksums);
  CHECK(a.losses == b.losses);
  CHECK(a.step_seconds == b.step_seconds);
}
