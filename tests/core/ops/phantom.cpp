#include "tests/core/ops/phantom.h"

#include "core/ops/activation.h"
#include "core/ops/attention.h"
#include "core/ops/dispatch.h"
#include "core/ops/elementwise.h"
#include "core/ops/embedding.h"
#include "core/ops/gemm.h"
#include "core/ops/loss.h"
#include "core/ops/norm.h"
#include "core/ops/optimizer.h"
#include "core/ops/router.h"

namespace moetwin::test {

Tensor phantom(const Shape& shape, DType dtype) {
  Tensor t;
  t.shape = shape;
  t.dtype = dtype;
  t.buffer = std::make_shared<Buffer>();
  t.buffer->name = "phantom";
  return t;
}

HostSizes sizes(std::vector<int64_t> values) {
  return std::make_shared<const std::vector<int64_t>>(std::move(values));
}

KernelList kernels_of(const OpCall& call, const KernelChoice& choice) {
  KernelList list;
  call.op->kernels(call, choice, list);
  return list;
}

std::vector<OpCall> sample_calls(DType d) {
  const DType real = real_dtype(d);
  const auto x = [&](std::initializer_list<int64_t> s) { return phantom(Shape(s), d); };
  const auto r = [&](std::initializer_list<int64_t> s) { return phantom(Shape(s), real); };
  const auto i32 = [](std::initializer_list<int64_t> s) { return phantom(Shape(s), DType::i32); };
  const auto i64 = [](std::initializer_list<int64_t> s) { return phantom(Shape(s), DType::i64); };
  const int64_t t = 12, h = 16, e = 4, k = 2, f = 24, v = 50;
  const HostSizes rows = sizes({5, 0, 7, 0});
  InitAttr init;
  init.global[0] = init.local[0] = t;
  init.global[1] = init.local[1] = h;
  HeadsAttr heads;
  heads.query_heads = 4, heads.kv_heads = 2, heads.head_dim = 4, heads.sequence_length = 6;
  RotaryAttr turn;
  turn.query_heads = 4, turn.kv_heads = 2, turn.head_dim = 4, turn.sequence_length = 6;
  LatentAttr latent;
  latent.heads = 4, latent.nope_dim = 4, latent.rope_dim = 2, latent.value_dim = 3;
  latent.sequence_length = 6;
  NormAttr layer, rms;
  rms.kind = NormKind::rms;
  GemmAttr gelu_after;
  gelu_after.epilogue = Epilogue::gelu;
  GroupedGemmAttr grouped_gelu;
  grouped_gelu.epilogue = Epilogue::gelu;
  SelectAttr select;
  select.top_k = k;
  RouterLossAttr loss;
  loss.top_k = k;
  PlanAttr plan;
  plan.experts = e, plan.top_k = k;
  return {
      add(x({t, h}), x({t, h}), x({t, h})),
      scaled_add(x({t, h}), r({t, h}), {2}),
      scale(x({t, h}), x({t, h}), {2}),
      cast(x({t, h}), r({t, h})),
      copy(x({t, h}), x({t, h})),
      fill(x({t, h}), {}),
      sum_parts(x({t, h}), x({t / 2, h}), {2}),
      init_normal(x({t, h}), init),
      dropout(x({t, h}), x({t, h}), {}),
      embed(i32({t}), x({v, h}), x({6, h}), x({t, h}), {6}),
      embed_backward(i32({t}), x({t, h}), r({v, h}), r({6, h}), {6}),
      norm(x({t, h}), x({h}), x({h}), x({t, h}), r({t}), r({t}), layer),
      norm_backward(x({t, h}), x({h}), {}, r({t}), x({t, h}), x({t, h}), r({h}), {}, rms),
      qk_norm(x({t, 32}), x({4}), x({4}), x({t, 32}), r({t, 6}), heads),
      qk_norm_backward(x({t, 32}), x({4}), x({4}), r({t, 6}), x({t, 32}), x({t, 32}), r({4}),
                       r({4}), heads),
      gemm(x({t, h}), x({h, f}), x({f}), x({t, f}), x({t, f}), gelu_after),
      bias_grad(x({t, h}), r({h})),
      grouped_gemm(x({t, h}), x({e, h, f}), x({e, f}), x({t, f}), x({t, f}), grouped_gelu, rows),
      grouped_gemm_weight_grad(x({t, h}), x({t, f}), r({e, h, f}), rows),
      grouped_bias_grad(x({t, f}), r({e, f}), rows),
      gelu(x({t, h}), x({t, h}), {}),
      gelu_backward(x({t, h}), x({t, h}), x({t, h}), {}),
      swiglu(x({t, 2 * f}), x({t, f})),
      swiglu_backward(x({t, 2 * f}), x({t, f}), x({t, 2 * f})),
      attention(x({t, 32}), x({t, h}), r({t, 4}), heads),
      attention_backward(x({t, 32}), x({t, h}), r({t, 4}), x({t, h}), x({t, 32}), heads),
      rotary(x({t, 32}), turn),
      latent_qkv(x({t, 24}), x({t, 28}), x({t, 2}), x({t, 60}), latent),
      latent_qkv_backward(x({t, 60}), x({t, 24}), x({t, 28}), x({t, 2}), latent),
      router_input(x({t, h}), r({t, h}), {}),
      router_input_backward(r({t, h}), x({t, h}), {}),
      router_select(r({t, e}), r({e}), r({t, e}), r({t, k}), i32({t, k}), i64({e + 1}), select),
      router_losses(r({t, e}), r({t, e}), i32({t, k}), {}, r({4 + e}), loss),
      router_backward(r({t, e}), r({t, e}), i32({t, k}), r({t, k}), r({t, k}), {}, r({t, e}), loss),
      router_scripted(i64({e}), r({t, e}), r({t, k}), i32({t, k}), i64({e + 1}), {k}),
      accumulate_counts(i64({e + 1}), i64({e + 1})),
      balance_bias_update(i64({e}), r({e}), r({e}), {}),
      dispatch_plan(i32({t, k}), r({t, k}), i64({e + 1}), i32({t * k}), i32({t * k}), i64({e + 1}),
                    plan),
      permute(x({t, h}), i32({t * k}), x({t * k, h}), {k, 0, t * k}),
      permute_backward(x({t * k, h}), i32({t * k}), x({t, h}), {k, 0, t}),
      combine(x({t * k, h}), r({t, k}), i32({t * k}), x({t, h}), {k, 0, t}),
      combine_backward(x({t, h}), x({t * k, h}), r({t, k}), i32({t * k}), x({t * k, h}), r({t, k}),
                       {k, 0, t}),
      regroup(x({t, h}), x({t, h}), sizes({0, 6, 6, 6, 0, 6})),
      cross_entropy(x({t, v}), i32({t}), r({2}), {1}),
      vocab_statistics(x({t, v}), i32({t}), r({3, t}), {0, v, 2 * v}),
      vocab_cross_entropy(x({t, v}), i32({t}), r({6, t}), r({2}), {{0, v, 2 * v}, 1, 2}),
      adamw(r({h}), x({h}), r({h}), r({h}), r({1}), {}),
      sgd(r({h}), x({h}), r({1}), {}),
      sum_squares(x({h}), r({1})),
      clip_factor(r({2}), r({2}), {}),
  };
}

}  // namespace moetwin::test
