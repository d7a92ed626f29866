// 16-bit activations, an fp32 router: what it is given is narrow, what it decides is not.

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/core/moe/fake_parts.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

/// Identity that remembers the type of what it is given.
class TypedExperts : public ScalingExperts {
 public:
  TypedExperts(RankCase& at, int64_t experts, DType* seen)
      : ScalingExperts(at, std::vector<double>(static_cast<size_t>(experts), 1)), seen_(seen) {}
  Tensor forward(Context& context, const Tensor& x, const HostSizes& rows,
                 ExpertsSaved& saved) override {
    *seen_ = x.dtype;
    return ScalingExperts::forward(context, x, rows, saved);
  }

 private:
  DType* seen_;
};

}  // namespace

TEST_CASE("a bf16 model's router chooses as exact arithmetic does, all of 8,192 tokens", "[P102]") {
  const int64_t tokens = 8192, experts = 16, hidden = 64;
  Scenario s = layer_scenario(1, 1, experts, 2);
  s.model_config.hidden_size = hidden;
  s.training_config.dtype = "bf16";
  const Lists l = on_ranks(s, [&](RankCase& at) {
    DType seen = DType::i32;
    MoeLayer layer(make_router(at.parameters, at.router_setup()), at.dispatcher(),
                   std::make_unique<TypedExperts>(at, experts, &seen), {}, 1);
    at.start();
    const Tensor weight = at.parameter("layers.0.moe.router.weight").value;
    const Tensor x = at.upload({tokens, hidden}, draws(tokens * hidden, 9));
    MoeLayer::Saved saved;
    const Tensor y = layer.forward(at.context, RankCase::batch(0, tokens, tokens), x, saved);
    CHECK(seen == DType::bf16);
    CHECK(y.dtype == DType::bf16);
    CHECK(weight.dtype == DType::f32);
    CHECK(saved.routing.logits.dtype == DType::f32);
    CHECK(saved.routing.probs.dtype == DType::f32);
    CHECK(saved.routing.weights.dtype == DType::f32);
    return Lists{at.download(x), at.download(weight), at.download(saved.routing.ids)};
  })[0];
  int64_t same = 0;
  for (size_t t = 0; t < static_cast<size_t>(tokens); ++t) {
    std::vector<std::pair<double, int>> logits;
    for (size_t e = 0; e < static_cast<size_t>(experts); ++e) {
      double sum = 0;
      for (size_t h = 0; h < static_cast<size_t>(hidden); ++h)
        sum +=
            l[0][t * static_cast<size_t>(hidden) + h] * l[1][h * static_cast<size_t>(experts) + e];
      logits.emplace_back(-sum, static_cast<int>(e));
    }
    std::sort(logits.begin(), logits.end());
    same += l[2][2 * t] == logits[0].second && l[2][2 * t + 1] == logits[1].second;
  }
  CHECK(same == tokens);
}
