#include <catch2/catch.hpp>
#include <cmath>

#include "core/ops/isa.h"
#include "core/ops/router.h"
#include "tests/cuda_on_host/ops/compare.h"

namespace moetwin::cuda_on_host {

TEST_CASE("jitter is drawn by global element, forward and backward") {
  Inputs in(1);
  each_real([&](DType d) {
    for (double jitter : {0.0, 0.05})
      for (int64_t h : {16, 13}) {
        RouterInputAttr attr;
        attr.key = philox_key(5, Purpose::jitter, 2, 9);
        attr.jitter = jitter;
        attr.first_token = 41;
        compare(router_input(in.real({11, h}, d), in.output({11, h}, DType::f32), attr), {4, 0});
        compare(router_input_backward(in.real({11, h}, DType::f32), in.real({11, h}, d), attr),
                {4, 1});
      }
  });
}

namespace {
struct Choice {
  Tensor probs, weights, ids;
};
OpCall select(Inputs& in, const Tensor& logits, const Tensor& bias, const SelectAttr& attr,
              Choice* choice = nullptr) {
  const int64_t t = logits.shape[0], e = logits.shape[1], k = attr.top_k;
  const Choice c = {in.output({t, e}, DType::f32), in.output({t, k}, DType::f32),
                    in.output({t, k}, DType::i32)};
  if (choice) *choice = c;
  return router_select(logits, bias, c.probs, c.weights, c.ids, in.output({e + 1}, DType::i64),
                       attr);
}
}  // namespace

TEST_CASE("selection: scores, noise, bias, groups, norms") {
  Inputs in(2);
  for (Score score : {Score::softmax, Score::sigmoid})
    for (Noise noise : {Noise::none, Noise::gaussian, Noise::gumbel})
      for (const bool biased : {false, true})
        for (int64_t k : {1, 2, 6}) {
          SelectAttr attr;
          attr.score = score;
          attr.noise = noise;
          attr.noise_scale = 0.3;
          attr.noise_key = philox_key(5, Purpose::logit_noise, 2, 9);
          attr.first_token = 100;
          attr.top_k = k;
          attr.groups = k == 2 ? 4 : 1;
          attr.kept_groups = k == 2 ? 2 : 1;
          attr.p_norm = k == 1 ? 1 : k == 2 ? 2 : 3;
          attr.weight_scale = 2.5;
          const int64_t experts = 40;
          const Tensor logits = in.real({70, experts}, DType::f32, -4, 4);
          compare(select(in, logits,
                         biased ? in.real({experts}, DType::f32, -0.05, 0.05) : Tensor{}, attr),
                  {64, 4});
        }
  // Many experts, raw scores as weights.
  SelectAttr attr;
  attr.top_k = 8;
  compare(select(in, in.real({9, 1500}, DType::f32, -4, 4), {}, attr), {64, 4});
}

TEST_CASE("ties go to the lower expert, also between groups") {
  Inputs in(3);
  SelectAttr attr;
  attr.top_k = 3;
  compare(select(in, in.list({2, 8}, DType::f32, std::vector<double>(16, 0.5)), {}, attr), {8, 0});
  attr.groups = 4;
  attr.kept_groups = 2;
  compare(select(in, in.list({1, 8}, DType::f32, {0, 1, 1, 0, 1, 0, 0, 1}), {}, attr), {8, 0});
}

TEST_CASE("the first token with a logit that is no number is marked") {
  Inputs in(4);
  for (double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    const Tensor logits = in.real({50, 12}, DType::f32);
    for (int64_t t : {17, 31})
      static_cast<float*>(logits.data())[t * 12 + 5] = static_cast<float>(bad);
    SelectAttr attr;
    attr.top_k = 2;
    compare(select(in, logits, {}, attr), {16, 4});
  }
}

TEST_CASE("balance losses and their gradients, by scope and by global counts") {
  Inputs in(5);
  for (Score score : {Score::softmax, Score::sigmoid})
    for (const auto& [tokens, rows] :
         {std::pair<int64_t, int64_t>{300, 0}, {300, 300}, {300, 150}, {24, 3}})
      for (const bool global : {false, true})
        for (double p : {0.0, 1.0, 2.0, 1.5}) {
          const int64_t experts = 10, k = p == 1.5 ? 1 : 3;
          RouterLossAttr attr;
          attr.score = score;
          attr.top_k = k;
          attr.rows_per_scope = rows;
          attr.p_norm = p;
          attr.weight_scale = 1.5;
          attr.aux = 0.01;
          attr.z = p == 2 ? 0 : 0.001;
          attr.importance = p == 0 ? 0 : 0.1;
          attr.weight = 0.25;
          attr.global_tokens = global ? 900 : 0;
          const Tensor logits = in.real({tokens, experts}, DType::f32, -3, 3);
          SelectAttr choose;
          choose.score = score;
          choose.top_k = k;
          choose.p_norm = p;
          choose.weight_scale = 1.5;
          Choice c;
          const OpCall chosen = select(in, logits, {}, choose, &c);
          ReferenceCall reference;
          reference.op = chosen.op;
          reference.attributes = chosen.attributes;
          for (int i = 0; i < chosen.count; ++i)
            if (chosen[i].defined())
              reference.tensors[static_cast<size_t>(i)] = {chosen[i].data(), chosen[i].shape,
                                                           chosen[i].dtype};
          reference_of(*chosen.op, Isa::x86_64)(reference);
          const Tensor counts = global ? in.whole({experts}, DType::i64, 0, 500) : Tensor{};
          compare(router_losses(logits, c.probs, c.ids, counts, in.real({4 + experts}, DType::f32),
                                attr),
                  {64, 4});
          compare(
              router_backward(logits, c.probs, c.ids, c.weights, in.real({tokens, k}, DType::f32),
                              counts, in.output({tokens, experts}, DType::f32), attr),
              {64, 16});
        }
}

TEST_CASE("scripted counts are met exactly; counts add up; the bias moves against them") {
  Inputs in(6);
  for (const auto& wanted :
       {std::vector<double>{5, 0, 9, 9, 0, 3}, {9, 9, 9, 0, 0, 0}, {0, 0, 0, 0, 0, 0}}) {
    ScriptedAttr attr;
    attr.top_k = 3;
    compare(router_scripted(in.list({6}, DType::i64, wanted), in.output({9, 6}, DType::f32),
                            in.output({9, 3}, DType::f32), in.output({9, 3}, DType::i32),
                            in.output({7}, DType::i64), attr),
            {2, 0});
    compare(balance_bias_update(in.list({6}, DType::i64, wanted), in.real({6}, DType::f32), {},
                                {0.001}),
            {4, 1});
  }
  compare(accumulate_counts(in.whole({300}, DType::i64, 0, 1 << 30),
                            in.whole({300}, DType::i64, 0, 1 << 30)));
}

}  // namespace moetwin::cuda_on_host
