#include "core/nn/context_attention.h"

#include "core/base/error.h"
#include "core/ops/attention.h"
#include "core/ops/elementwise.h"

namespace moetwin {
namespace {

constexpr const char* kPurpose = "context parallel";

int64_t key_width(const HeadsAttr& heads) {
  return heads.kv_heads * (heads.head_dim + heads.value_width());
}

/// As many elements of x as the other has, whichever they are.
Tensor like(const Tensor& x, const Shape& shape) {
  return x.reshaped({x.elements()}).slice(0, {shape.elements()}).reshaped(shape);
}

/// With keys of another rank's part: `keys` for every query.
HeadsAttr with_keys(HeadsAttr heads, int64_t keys) {
  heads.other_keys = keys;
  return heads;
}

/// Of a rank that has all tokens and its part of the heads.
HeadsAttr part_of_heads(HeadsAttr heads, int64_t n) {
  heads.query_heads /= n;
  heads.kv_heads /= n;
  heads.sequence_length *= n;
  return heads;
}

HostSizes counts(std::vector<int64_t> values) {
  return std::make_shared<const std::vector<int64_t>>(std::move(values));
}

}  // namespace

ContextAttention::ContextAttention(Communicator* group, const std::string& exchange)
    : group_(group),
      exchange_(exchange == "a2a"          ? Exchange::a2a
                : exchange == "all_gather" ? Exchange::all_gather
                                           : Exchange::p2p) {}

Tensor ContextAttention::keys_and_values(Context& context, int64_t tokens, const HeadsAttr& heads,
                                         const char* name) const {
  return context.memory.allocate({tokens, key_width(heads)}, context.dtype,
                                 MemoryClass::communication, name);
}

void ContextAttention::to_next(Context& context, const Tensor& x, const Tensor& into) const {
  const int64_t n = size(), me = group_->rank(), rows = x.shape[0];
  std::vector<int64_t> send(static_cast<size_t>(n)), receive(send), begin(send);
  send[static_cast<size_t>((me + 1) % n)] = rows;
  receive[static_cast<size_t>((me + n - 1) % n)] = rows;
  const HostSizes zero = counts(begin);
  group_->all_to_all_v(x, into, counts(std::move(send)), zero, counts(std::move(receive)), zero,
                       context.streams.dispatch, kPurpose);
}

Tensor ContextAttention::to_all(Context& context, const Tensor& x, const char* name) const {
  const int64_t n = size(), rows = x.shape[0] / n;
  std::vector<int64_t> begin;
  for (int64_t i = 0; i < n; ++i) begin.push_back(i * rows);
  const HostSizes each = counts(std::vector<int64_t>(static_cast<size_t>(n), rows)),
                  at = counts(begin);
  // Heads of one receiver are brought together, and tokens into order on the other side.
  const Tensor sent = context.memory.allocate(x.shape, x.dtype, MemoryClass::communication, name);
  context.launch(copy(x, sent));
  const Tensor received =
      context.memory.allocate(x.shape, x.dtype, MemoryClass::communication, name);
  group_->all_to_all_v(sent, received, each, at, each, at, context.streams.compute, kPurpose);
  const Tensor ordered = context.activation(x.shape, name);
  context.launch(copy(received, ordered));
  return ordered;
}

void ContextAttention::ring_forward(Context& context, const HeadsAttr& heads, const Tensor& qkv,
                                    const Tensor& out, const Tensor& lse,
                                    std::vector<Tensor>& kept) const {
  const int64_t n = size(), tokens = qkv.shape[0];
  Tensor held = keys_and_values(context, tokens, heads, "keys and values");
  context.launch(copy(like(qkv, held.shape), held));
  for (int64_t i = 0; i < n; ++i) {
    Tensor next;
    if (i + 1 < n) {
      context.order(context.streams.compute, context.streams.dispatch);
      next = keys_and_values(context, tokens, heads, "keys and values");
      to_next(context, held, next);
    }
    if (i == 0) {
      kept.push_back(context.launch_keeping(attention(qkv, out, lse, heads)));
    } else {
      const Tensor part = context.activation(out.shape, "attention with another rank's keys");
      const Tensor part_lse = context.memory.allocate(
          lse.shape, lse.dtype, MemoryClass::activations, "log-sum-exp of another rank's keys");
      kept.push_back(context.launch_keeping(
          attention(qkv, part, part_lse, with_keys(heads, heads.sequence_length / 2))));
      context.launch(add(out, part, out));  // each by its share of the sum of exponentials
    }
    if (i + 1 < n) context.order(context.streams.dispatch, context.streams.compute);
    held = next;
  }
}

void ContextAttention::ring_backward(Context& context, const HeadsAttr& heads, const Tensor& qkv,
                                     const Tensor& out, const Tensor& lse, const Tensor& d_out,
                                     const Tensor& d_qkv) const {
  const int64_t n = size(), tokens = qkv.shape[0];
  // Their gradient follows the keys and values, a step behind, and goes home last.
  const char* const name = "keys and values and their gradient";
  const Shape one = {tokens, key_width(heads)}, both = {2 * tokens, key_width(heads)};
  Tensor held = keys_and_values(context, 2 * tokens, heads, name);
  context.launch(copy(like(qkv, one), like(held, one)));
  for (int64_t i = 0; i < n; ++i) {
    Tensor next;
    context.order(context.streams.compute, context.streams.dispatch);
    if (i + 1 < n) {
      const Shape& sent = i == 0 ? one : both;
      next = keys_and_values(context, 2 * tokens, heads, name);
      to_next(context, like(held, sent), like(next, sent));
    }
    Tensor part = d_qkv;
    if (i > 0) part = context.activation(d_qkv.shape, "gradient with another rank's keys");
    context.launch(attention_backward(
        qkv, out, lse, d_out, part, i == 0 ? heads : with_keys(heads, heads.sequence_length / 2)));
    if (i > 0) context.launch(add(d_qkv, part, d_qkv));
    if (i + 1 < n) context.order(context.streams.dispatch, context.streams.compute);
    if (next.defined()) held = next;
  }
  context.order(context.streams.compute, context.streams.dispatch);
  const Tensor home = keys_and_values(context, tokens, heads, "gradient of keys and values");
  to_next(context, like(held, one), home);
  context.order(context.streams.dispatch, context.streams.compute);
  const Tensor mine = like(d_qkv, home.shape);
  context.launch(add(mine, home, mine));
}

void ContextAttention::forward(Context& context, const HeadsAttr& heads, const Tensor& qkv,
                               const Tensor& out, const Tensor& lse,
                               std::vector<Tensor>& kept) const {
  require(!context.device.properties().numerics, "context parallelism is not computed");
  const int64_t n = size(), tokens = qkv.shape[0];
  switch (exchange_) {
    case Exchange::p2p:
      return ring_forward(context, heads, qkv, out, lse, kept);
    case Exchange::all_gather: {
      const Tensor mine = keys_and_values(context, tokens, heads, "keys and values");
      context.launch(copy(like(qkv, mine.shape), mine));
      const Tensor all = keys_and_values(context, n * tokens, heads, "all keys and values");
      group_->all_gather(mine, all, context.streams.compute, kPurpose);
      kept.push_back(context.launch_keeping(
          attention(qkv, out, lse, with_keys(heads, n * heads.sequence_length / 2))));
      return;
    }
    case Exchange::a2a: {
      const HeadsAttr part = part_of_heads(heads, n);
      const Tensor mine = to_all(context, qkv.reshaped({n * tokens, qkv.shape[1] / n}),
                                 "all tokens of a part of the heads");
      const Tensor attended =
          context.activation({n * tokens, out.shape[1] / n}, "attention of a part of the heads");
      kept.push_back(context.launch_keeping(
          attention(mine, attended, lse.reshaped({n * tokens, lse.shape[1] / n}), part)));
      to_all(context, attended, "attention of all heads");
    }
  }
}

void ContextAttention::backward(Context& context, const HeadsAttr& heads, const Tensor& qkv,
                                const Tensor& out, const Tensor& lse, const Tensor& d_out,
                                const Tensor& d_qkv) const {
  const int64_t n = size(), tokens = qkv.shape[0];
  switch (exchange_) {
    case Exchange::p2p:
      return ring_backward(context, heads, qkv, out, lse, d_out, d_qkv);
    case Exchange::all_gather: {
      const Tensor mine = keys_and_values(context, tokens, heads, "keys and values");
      context.launch(copy(like(qkv, mine.shape), mine));
      const Tensor all = keys_and_values(context, n * tokens, heads, "all keys and values");
      group_->all_gather(mine, all, context.streams.compute, kPurpose);
      context.launch(attention_backward(qkv, out, lse, d_out, d_qkv,
                                        with_keys(heads, n * heads.sequence_length / 2)));
      group_->reduce_scatter(all, mine, ReduceOp::sum, context.streams.compute, kPurpose);
      const Tensor to = like(d_qkv, mine.shape);
      context.launch(copy(mine, to));
      return;
    }
    case Exchange::a2a: {
      // Queries, keys, values and output were kept as they were exchanged.
      const Shape by_heads = {n * tokens, qkv.shape[1] / n},
                  of_out = {n * tokens, out.shape[1] / n};
      const Tensor d_mine = to_all(context, d_out.reshaped(of_out), "output gradient of heads");
      const Tensor d_part = context.activation(by_heads, "qkv gradient of a part of the heads");
      context.launch(attention_backward(qkv.reshaped(by_heads), out.reshaped(of_out),
                                        lse.reshaped({n * tokens, lse.shape[1] / n}), d_mine,
                                        d_part, part_of_heads(heads, n)));
      to_all(context, d_part, "qkv gradient of all heads");
    }
  }
}

}  // namespace moetwin
