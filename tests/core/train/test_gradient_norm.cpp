// One global norm and one clip factor, wherever dense and expert parameters live.

#include <catch2/catch.hpp>
#include <cmath>

#include "core/ops/elementwise.h"
#include "tests/core/train/small_training.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

Context& context_of(Trainer& trainer) { return trainer.context(); }

void clear(Trainer& trainer) {
  for (FlatGroup& group : trainer.groups()) context_of(trainer).launch(fill(group.gradients(), {}));
}

/// The first `count` gradient elements of each local expert get `value_of(global expert)`.
void set_experts(Trainer& trainer, const std::string& name, int64_t count,
                 const std::function<double(int64_t)>& value_of) {
  for (const Parameter& p : trainer.parameters().all()) {
    if (p.name != name) continue;
    const int64_t per_expert = p.elements() / p.shape[0];
    for (int64_t e = 0; e < p.shape[0]; ++e) {
      FillAttr attr;
      attr.value = value_of(p.offset[0] + e);
      context_of(trainer).launch(fill(p.gradient.slice(e * per_expert, {count}), attr));
    }
  }
}

/// Norm before clipping as this rank has it.
std::vector<double> norm_of(Trainer& trainer, int64_t) {
  return {to_doubles(trainer, trainer.clip_factor())[1]};
}

}  // namespace

TEST_CASE("the norm does not depend on where experts live: 10.954451", "[P113]") {
  // Expert i has four gradient elements equal to i + 1: sqrt(4 (1 + 4 + 9 + 16)).
  for (const int64_t zero : {0, 1})
    for (const auto& [dp, ep] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {1, 2}, {1, 4}, {2, 2}, {4, 1}}) {
      CAPTURE(zero, dp, ep);
      Scenario s = small_training(dp, ep, 4, 1, 1);
      s.distributed_config.zero_stage = zero;
      TrainRunOptions options;
      options.look_at_gradients = [](Trainer& trainer, int64_t) {
        clear(trainer);
        set_experts(trainer, "layers.0.moe.experts.w2", 4,
                    [](int64_t expert) { return static_cast<double>(expert + 1); });
        return std::vector<double>{};
      };
      options.look_after_step = norm_of;
      const TrainResult result = train_in_child(s, options);
      for (const auto& of_rank : result.seen)
        CHECK(of_rank.at(0) == Approx(std::sqrt(120.0)).epsilon(1e-12));
      CHECK(result.gradient_norms.at(0) == Approx(10.954451).epsilon(1e-7));
    }
}

TEST_CASE(
    "one norm clips all: dense parameters stay equal although experts' gradients are far "
    "apart",
    "[P116]") {
  // Ranks 0 and 2 hold experts with gradients of 1, ranks 1 and 3 of 10; 32 elements each.
  Scenario s = small_training(2, 2, 4, 1, 10);
  s.training_config.max_grad_norm = 1;
  s.training_config.learning_rate = 0.01;
  TrainRunOptions options;
  options.look_at_gradients = [](Trainer& trainer, int64_t) {
    clear(trainer);
    set_experts(trainer, "layers.0.moe.experts.w2", 16,
                [](int64_t expert) { return expert < 2 ? 1.0 : 10.0; });
    for (const Parameter& p : trainer.parameters().all())
      if (p.name == "layers.0.attention.out.weight") {
        FillAttr attr;
        attr.value = 0.5;
        trainer.context().launch(fill(p.gradient.slice(0, {4}), attr));
      }
    return std::vector<double>{};
  };
  options.look_after_step = norm_of;
  const TrainResult result = train_in_child(s, options);
  const double expected = std::sqrt(2 * 16 * 1.0 + 2 * 16 * 100.0 + 4 * 0.25);
  for (const auto& of_rank : result.seen) {
    REQUIRE(of_rank.size() == 10);
    for (const double norm : of_rank) CHECK(norm == Approx(expected).epsilon(1e-12));
  }
  for (const auto& [name, hash] : result.checksums[0])
    if (name.find(".experts.") == std::string::npos)
      for (size_t r = 1; r < 4; ++r) CHECK(result.checksums[r].at(name) == hash);
}

TEST_CASE("dense over eight ranks, experts over four by two: the norm of one rank", "[P118]") {
  Scenario s = small_training(2, 4, 8, 2, 3);
  s.training_config.max_grad_norm = 0.05;  // active
  Scenario one = s;
  one.distributed_config.world_size = one.distributed_config.data_parallel_size =
      one.distributed_config.expert_parallel_size = 1;
  TrainRunOptions options;
  options.look_after_step = norm_of;
  const TrainResult result = train_in_child(s, options), expected = train_in_child(one, options);
  for (size_t step = 0; step < 3; ++step) {
    CHECK(expected.seen[0][step] > 0.05);
    for (const auto& of_rank : result.seen)
      CHECK(of_rank[step] == Approx(expected.seen[0][step]).epsilon(1e-9));
  }
  CHECK(distance(result.parameters, expected.parameters).value <= 1e-9);
}
