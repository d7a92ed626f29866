#include "core/moe/dispatcher.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/moe/balance.h"
#include "core/ops/dispatch.h"
#include "core/ops/elementwise.h"

namespace moetwin {

AllToAllDispatcher::AllToAllDispatcher(const DispatcherConfig& config, const Grid& grid,
                                       Communicator* ep)
    : config_(config),
      ep_(ep && ep->size() > 1 ? ep : nullptr),
      ranks_(ep_ ? ep_->size() : 1),
      columns_(grid.expert_sharding()),
      hidden_rows_(grid.hidden_sharding()),
      local_experts_(grid.local_experts()) {}

Tensor AllToAllDispatcher::count_buffer(Context& context) {
  int64_t n = config_.experts + 1 + config_.experts * config_.chunks + 1;
  if (ep_) n += ranks_ * local_experts_ * config_.chunks;
  return context.memory.allocate({n}, DType::i64, MemoryClass::control, "expert counts");
}

Tensor AllToAllDispatcher::router_counts(const Tensor& buffer) const {
  return buffer.slice(0, {config_.experts + 1});
}

void AllToAllDispatcher::exchange_counts(Context& context, const Tensor& buffer) const {
  const int64_t per_rank = local_experts_, chunks = config_.chunks;
  const Tensor kept = buffer.slice(config_.experts + 1, {config_.experts, chunks});
  const Tensor received =
      buffer.slice(config_.experts + 1 + config_.experts * chunks + 1, {ranks_ * per_rank, chunks});
  std::vector<int64_t> rows(static_cast<size_t>(ranks_), per_rank), from(rows.size()),
      to(rows.size());
  for (int64_t r = 0; r < ranks_; ++r) {
    from[static_cast<size_t>(r)] = r % columns_ * per_rank;
    to[static_cast<size_t>(r)] = r * per_rank;
  }
  const auto shared_rows = std::make_shared<const std::vector<int64_t>>(std::move(rows));
  ep_->all_to_all_v(kept, received, shared_rows,
                    std::make_shared<const std::vector<int64_t>>(std::move(from)), shared_rows,
                    std::make_shared<const std::vector<int64_t>>(std::move(to)),
                    context.streams.dispatch, "expert counts");
}

// Receive buffers are allocated before the compute stream's event is recorded and the dispatch
// stream waits for that event: so whatever used the memory before is done when the exchange writes
// to it.
Tensor AllToAllDispatcher::send(Context& context, const DispatchChunk& chunk, const Tensor& rows,
                                const char* purpose, Event& arrived) const {
  Tensor received = context.memory.allocate({chunk.received_rows, rows.shape[1]}, rows.dtype,
                                            MemoryClass::communication, "received tokens");
  context.order(context.streams.compute, context.streams.dispatch);
  ep_->all_to_all_v(rows, received, chunk.send_rows, chunk.send_begin, chunk.recv_rows,
                    chunk.recv_begin, context.streams.dispatch, purpose);
  arrived = context.device.record(context.streams.dispatch);
  return received;
}

Tensor AllToAllDispatcher::send_back(Context& context, const DispatchChunk& chunk,
                                     const Tensor& rows, const char* purpose,
                                     Event& arrived) const {
  Tensor returned =
      context.memory.allocate({hidden_rows_ * chunk.own_rows, rows.shape[1]}, rows.dtype,
                              MemoryClass::communication, "returned tokens");
  context.order(context.streams.compute, context.streams.dispatch);
  ep_->all_to_all_v(rows, returned, chunk.recv_rows, chunk.recv_begin, chunk.send_rows,
                    chunk.back_begin, context.streams.dispatch, purpose);
  arrived = context.device.record(context.streams.dispatch);
  return returned;
}

Tensor AllToAllDispatcher::regrouped(Context& context, const Tensor& rows,
                                     const HostSizes& segments) const {
  if (!segments) return rows;
  Tensor out = context.memory.allocate(rows.shape, rows.dtype, MemoryClass::communication,
                                       "regrouped tokens");
  context.launch(regroup(rows, out, segments));
  return out;
}

Tensor AllToAllDispatcher::summed(Context& context, const Tensor& returned,
                                  int64_t own_rows) const {
  if (hidden_rows_ == 1) return returned;
  Tensor out = context.memory.allocate({own_rows, returned.shape[1]}, returned.dtype,
                                       MemoryClass::communication, "summed tokens");
  PartsAttr parts;
  parts.parts = hidden_rows_;
  context.launch(sum_parts(returned, out, parts));
  return out;
}

void AllToAllDispatcher::read_counts(Context& context, const MicroBatch& batch,
                                     const Tensor& buffer, int64_t tokens,
                                     DispatchSaved& saved) const {
  std::vector<int64_t> host(static_cast<size_t>(buffer.elements()));
  context.to_host(buffer, host.data(), ep_ ? context.streams.dispatch : context.streams.compute);
  if (const int64_t mark = host[static_cast<size_t>(config_.experts)]; mark != 0)
    throw Error(
        ErrorClass::non_finite,
        fmt::format(
            "non-finite router logit: step {}, layer {}, rank {}, token {} of the global batch",
            batch.step, config_.layer, context.device.properties().rank,
            batch.first_token() + mark - 1));
  lay_out(host, tokens, saved);
}

Tensor AllToAllDispatcher::forward(Context& context, const MicroBatch& batch,
                                   const Routing& routing, const Tensor& buffer, const Tensor& x,
                                   Experts& experts, const std::function<void()>& beside,
                                   DispatchSaved& saved) {
  const int64_t tokens = x.shape[0], hidden = x.shape[1], k = config_.top_k,
                chunks = config_.chunks;
  const auto index = [&](const char* name) {
    return context.memory.allocate({tokens * k}, DType::i32, MemoryClass::router, name);
  };
  PlanAttr plan;
  plan.experts = config_.experts;
  plan.top_k = k;
  plan.capacity = expert_capacity(config_.moe, tokens);
  plan.by_probability = config_.moe.drop_policy == "probability";
  plan.chunks = chunks;
  const bool planned = !saved.chunks.empty();
  if (!planned) {
    saved.position = index("position of assignments");
    saved.source = index("source of rows");
    context.launch(
        dispatch_plan(routing.ids, routing.weights, routing.counts, saved.position, saved.source,
                      buffer.slice(config_.experts + 1, {config_.experts * chunks + 1}), plan));
    if (ep_) {
      context.order(context.streams.compute, context.streams.dispatch);
      exchange_counts(context, buffer);
    }
  }
  // Tokens are gathered into expert order while the counts travel.
  std::vector<Tensor> gathered;
  for (int64_t c = 0; c < chunks; ++c) {
    RangeAttr range;
    range.top_k = k;
    range.first = chunk_begin(tokens, chunks, c) * k;
    range.count = chunk_begin(tokens, chunks, c + 1) * k - range.first;
    if (planned)
      range.count = saved.chunks[static_cast<size_t>(c)].own_rows;
    else if (plan.capacity >= 0)
      range.count = std::min(range.count, plan.capacity * config_.experts);
    gathered.push_back(context.memory.allocate({range.count, hidden}, x.dtype,
                                               MemoryClass::communication, "gathered tokens"));
    context.launch(permute(x, saved.source, gathered.back(), range));
  }
  if (!planned) read_counts(context, batch, buffer, tokens, saved);

  std::vector<Tensor> arriving(saved.chunks.size());
  std::vector<Event> arrived(saved.chunks.size());
  for (size_t c = 0; c < saved.chunks.size(); ++c) {
    const DispatchChunk& chunk = saved.chunks[c];
    arriving[c] = ep_ ? send(context, chunk, gathered[c], "dispatch", arrived[c])
                      : gathered[c].rows(0, chunk.own_rows);
  }
  beside();
  std::vector<Tensor> leaving(saved.chunks.size()), returning(saved.chunks.size());
  for (size_t c = 0; c < saved.chunks.size(); ++c) {
    DispatchChunk& chunk = saved.chunks[c];
    if (ep_) context.device.wait(context.streams.compute, arrived[c]);
    const Tensor rows = regrouped(context, arriving[c], chunk.to_experts);
    const Tensor y = experts.forward(context, rows, chunk.expert_rows, chunk.saved);
    leaving[c] = regrouped(context, y, chunk.from_experts);
    returning[c] = ep_ ? send_back(context, chunk, leaving[c], "combine", arrived[c]) : leaving[c];
  }
  Tensor out = context.activation({tokens, hidden}, "combined tokens");
  for (size_t c = 0; c < saved.chunks.size(); ++c) {
    DispatchChunk& chunk = saved.chunks[c];
    if (ep_) context.device.wait(context.streams.compute, arrived[c]);
    chunk.expert_out = summed(context, returning[c], chunk.own_rows);
    RangeAttr range;
    range.top_k = k;
    range.first = chunk.first_token;
    range.count = chunk.tokens;
    context.launch(combine(chunk.expert_out, routing.weights, saved.position, out, range));
  }
  return out;
}

Tensor AllToAllDispatcher::backward(Context& context, const Routing& routing, const Tensor& d_out,
                                    Experts& experts, const std::function<void()>& beside,
                                    const Tensor& d_weights, DispatchSaved& saved) {
  const int64_t tokens = d_out.shape[0], hidden = d_out.shape[1], k = config_.top_k;
  const size_t chunks = saved.chunks.size();
  const auto range_of = [k](const DispatchChunk& chunk) {
    RangeAttr range;
    range.top_k = k;
    range.first = chunk.first_token;
    range.count = chunk.tokens;
    return range;
  };
  std::vector<Tensor> leaving(chunks), arriving(chunks), returning(chunks), sent_back(chunks);
  std::vector<Event> arrived(chunks);
  for (size_t c = 0; c < chunks; ++c) {
    DispatchChunk& chunk = saved.chunks[c];
    leaving[c] = context.memory.allocate({chunk.own_rows, hidden}, d_out.dtype,
                                         MemoryClass::communication, "gradients of rows");
    context.launch(combine_backward(d_out, chunk.expert_out, routing.weights, saved.position,
                                    leaving[c], d_weights, range_of(chunk)));
    chunk.expert_out = {};
    arriving[c] =
        ep_ ? send(context, chunk, leaving[c], "combine backward", arrived[c]) : leaving[c];
  }
  beside();
  for (size_t c = 0; c < chunks; ++c) {
    DispatchChunk& chunk = saved.chunks[c];
    if (ep_) context.device.wait(context.streams.compute, arrived[c]);
    const Tensor rows = regrouped(context, arriving[c], chunk.to_experts);
    const Tensor dx = experts.backward(context, chunk.saved, rows, chunk.expert_rows);
    chunk.saved = {};
    sent_back[c] = regrouped(context, dx, chunk.from_experts);
    returning[c] = ep_ ? send_back(context, chunk, sent_back[c], "dispatch backward", arrived[c])
                       : sent_back[c];
  }
  Tensor dx = context.activation({tokens, hidden}, "gradient of dispatched tokens");
  for (size_t c = 0; c < chunks; ++c) {
    DispatchChunk& chunk = saved.chunks[c];
    if (ep_) context.device.wait(context.streams.compute, arrived[c]);
    const Tensor rows = summed(context, returning[c], chunk.own_rows);
    context.launch(permute_backward(rows, saved.position, dx, range_of(chunk)));
  }
  return dx;
}

}  // namespace moetwin
