#include "core/moe/dispatcher.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/moe/balance.h"
#include "core/ops/dispatch.h"
#include "core/ops/elementwise.h"

namespace moetwin {

AllToAllDispatcher::AllToAllDispatcher(const DispatcherConfig& config, const Grid& grid,
                                       Communicator* ep, Communicator* expert_tp)
    : config_(config),
      ep_(ep && ep->size() > 1 ? ep : nullptr),
      expert_tp_(expert_tp && expert_tp->size() > 1 ? expert_tp : nullptr),
      ranks_(ep_ ? ep_->size() : 1),
      splits_(expert_tp_ ? expert_tp_->size() : 1),
      columns_(grid.expert_sharding()),
      hidden_rows_(grid.hidden_sharding()),
      local_experts_(grid.local_experts()) {
  for (int64_t q = 0; q < splits_; ++q)
    for (int64_t r = 0; r < ranks_; ++r) {
      if (!ep_ && !expert_tp_) {
        slice_of_.push_back(config.slice);
        continue;
      }
      // Ranks of an EP group stand expert-TP apart, those of an expert-TP group side by side.
      const int64_t first = ep_ ? ep_->group().member(r) : expert_tp_->group().member(0);
      const int64_t mine = ep_ && expert_tp_ ? expert_tp_->rank() : 0;
      slice_of_.push_back(grid.coordinates(first - mine + q).tp);
    }
  if (config.rebalancing.config.kind == "none") return;
  require(ep_ && !expert_tp_ && hidden_rows_ == 1, "whole experts are rebalanced over EP");
  rebalancer_ =
      std::make_unique<Rebalancer>(config.rebalancing, *ep_, config.micro_batches, config.experts);
}

Tensor AllToAllDispatcher::count_buffer(Context& context) {
  int64_t n = config_.experts + 1 + config_.experts * plan_chunks() + 1;
  if (rebalancer_)
    n += ranks_ * config_.experts * plan_chunks();
  else if (exchanges())
    n += splits_ * ranks_ * local_experts_ * plan_chunks();
  return context.memory.allocate({n}, DType::i64, MemoryClass::control, "expert counts");
}

Tensor AllToAllDispatcher::router_counts(const Tensor& buffer) const {
  return buffer.slice(0, {config_.experts + 1});
}

void AllToAllDispatcher::exchange_counts(Context& context, const Tensor& buffer) const {
  const int64_t per_rank = local_experts_, chunks = plan_chunks(), experts = config_.experts;
  const Stream stream = context.streams.dispatch;
  const Tensor kept = buffer.slice(experts + 1, {experts, chunks});
  if (rebalancer_) {  // who rebalances must know all
    ep_->all_gather(kept,
                    buffer.slice(experts + 1 + experts * chunks + 1, {ranks_ * experts, chunks}),
                    stream, "expert counts");
    return;
  }
  const Tensor received =
      buffer.slice(experts + 1 + experts * chunks + 1, {splits_ * ranks_ * per_rank, chunks});
  const int64_t split = expert_tp_ ? expert_tp_->rank() : 0;
  const Tensor mine = received.rows(split * ranks_ * per_rank, ranks_ * per_rank);
  if (ep_) {
    std::vector<int64_t> rows(static_cast<size_t>(ranks_), per_rank), from(rows.size()),
        to(rows.size());
    for (int64_t r = 0; r < ranks_; ++r) {
      from[static_cast<size_t>(r)] = r % columns_ * per_rank;
      to[static_cast<size_t>(r)] = r * per_rank;
    }
    const auto shared_rows = std::make_shared<const std::vector<int64_t>>(std::move(rows));
    ep_->all_to_all_v(kept, mine, shared_rows,
                      std::make_shared<const std::vector<int64_t>>(std::move(from)), shared_rows,
                      std::make_shared<const std::vector<int64_t>>(std::move(to)), stream,
                      "expert counts");
  }
  if (expert_tp_) expert_tp_->all_gather(ep_ ? mine : kept, received, stream, "expert counts");
}

// Receive buffers are allocated before the compute stream's event is recorded and the dispatch
// stream waits for that event: so whatever used the memory before is done when the exchange writes
// to it.
AllToAllDispatcher::InFlight AllToAllDispatcher::send(Context& context, const DispatchChunk& chunk,
                                                      const Tensor& rows,
                                                      const char* purpose) const {
  const Stream stream = context.streams.dispatch;
  const auto room = [&](int64_t n) {
    return context.memory.allocate({n, rows.shape[1]}, rows.dtype, MemoryClass::communication,
                                   "received tokens");
  };
  InFlight flight;
  const Tensor exchanged = ep_ ? room(chunk.exchanged_rows) : rows;
  flight.rows = expert_tp_ ? room(chunk.received_rows) : exchanged;
  context.order(context.streams.compute, stream);
  if (ep_)
    ep_->all_to_all_v(rows, exchanged, chunk.send_rows, chunk.send_begin, chunk.recv_rows,
                      chunk.recv_begin, stream, purpose);
  if (expert_tp_)
    expert_tp_->all_to_all_v(exchanged, flight.rows, chunk.own_to_all, chunk.own_begin,
                             chunk.gathered_rows, chunk.gathered_begin, stream,
                             "expert tensor parallel");
  flight.between = {exchanged};
  flight.arrived = context.device.record(stream);
  return flight;
}

AllToAllDispatcher::InFlight AllToAllDispatcher::send_back(Context& context,
                                                           const DispatchChunk& chunk,
                                                           const Tensor& rows,
                                                           const char* purpose) const {
  const Stream stream = context.streams.dispatch;
  const auto room = [&](int64_t n, const char* name) {
    return context.memory.allocate({n, rows.shape[1]}, rows.dtype, MemoryClass::communication,
                                   name);
  };
  InFlight flight;
  Tensor parts, sum = rows;
  if (expert_tp_) {
    parts = room(splits_ * chunk.exchanged_rows, "partial results");
    sum = room(chunk.exchanged_rows, "summed partial results");
  }
  flight.rows = ep_ ? room(hidden_rows_ * chunk.own_rows, "returned tokens") : sum;
  flight.between = {parts, sum};
  context.order(context.streams.compute, stream);
  if (expert_tp_) {
    expert_tp_->all_to_all_v(rows, parts, chunk.gathered_rows, chunk.gathered_begin,
                             chunk.own_to_all, chunk.parts_begin, stream, "expert tensor parallel");
    PartsAttr attr;
    attr.parts = splits_;
    context.device.launch(sum_parts(parts, sum, attr), stream);
  }
  if (ep_)
    ep_->all_to_all_v(sum, flight.rows, chunk.recv_rows, chunk.recv_begin, chunk.send_rows,
                      chunk.back_begin, stream, purpose);
  flight.arrived = context.device.record(stream);
  return flight;
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
  context.to_host(buffer, host.data(),
                  exchanges() ? context.streams.dispatch : context.streams.compute);
  if (const int64_t mark = host[static_cast<size_t>(config_.experts)]; mark != 0)
    throw Error(
        ErrorClass::non_finite,
        fmt::format(
            "non-finite router logit: step {}, layer {}, rank {}, token {} of the global batch",
            batch.step, config_.layer, context.device.properties().rank,
            batch.first_token() + mark - 1));
  lay_out(host, batch, tokens, saved);
}

AllToAllDispatcher::Slice AllToAllDispatcher::slice_of(const Routing& routing,
                                                       const DispatchSaved& saved,
                                                       int64_t tokens) const {
  const int64_t first = config_.slice * tokens, k = config_.top_k;
  require(config_.slices * tokens == routing.ids.shape[0], "slices of equal size");
  Slice slice;
  slice.weights = routing.weights.rows(first, tokens);
  slice.position = saved.position.slice(first * k, {tokens * k});
  slice.source = saved.source.slice(first * k, {tokens * k});
  slice.range.top_k = k;
  slice.range.slice = first;
  return slice;
}

Tensor AllToAllDispatcher::forward(Context& context, const MicroBatch& batch,
                                   const Routing& routing, const Tensor& buffer, const Tensor& x,
                                   Experts& experts, const std::function<void()>& beside,
                                   DispatchSaved& saved) {
  const int64_t all = routing.ids.shape[0], tokens = x.shape[0], hidden = x.shape[1],
                k = config_.top_k, chunks = config_.chunks;
  const auto index = [&](const char* name) {
    return context.memory.allocate({all * k}, DType::i32, MemoryClass::router, name);
  };
  PlanAttr plan;
  plan.experts = config_.experts;
  plan.top_k = k;
  plan.capacity = expert_capacity(config_.moe, all);
  plan.by_probability = config_.moe.drop_policy == "probability";
  plan.chunks = plan_chunks();
  const bool planned = !saved.chunks.empty();
  if (!planned) {
    saved.position = index("position of assignments");
    saved.source = index("source of rows");
    context.launch(dispatch_plan(
        routing.ids, routing.weights, routing.counts, saved.position, saved.source,
        buffer.slice(config_.experts + 1, {config_.experts * plan.chunks + 1}), plan));
    if (exchanges()) {
      context.order(context.streams.compute, context.streams.dispatch);
      exchange_counts(context, buffer);
    }
  }
  const Slice slice = slice_of(routing, saved, tokens);
  // Tokens are gathered into expert order while the counts travel.
  std::vector<Tensor> gathered;
  for (int64_t c = 0; c < chunks; ++c) {
    RangeAttr range = slice.range;
    range.first = chunk_begin(tokens, chunks, c) * k;
    range.count = chunk_begin(tokens, chunks, c + 1) * k - range.first;
    if (planned)
      range.count = saved.chunks[static_cast<size_t>(c)].own_rows;
    else if (plan.capacity >= 0)
      range.count = std::min(range.count, plan.capacity * config_.experts);
    gathered.push_back(context.memory.allocate({range.count, hidden}, x.dtype,
                                               MemoryClass::communication, "gathered tokens"));
    context.launch(permute(x, slice.source, gathered.back(), range));
  }
  if (!planned) read_counts(context, batch, buffer, tokens, saved);

  const auto wait = [&](InFlight& flight) {
    if (exchanges()) context.device.wait(context.streams.compute, flight.arrived);
    flight.between.clear();
  };
  std::vector<InFlight> arriving(saved.chunks.size()), returning(saved.chunks.size());
  for (size_t c = 0; c < saved.chunks.size(); ++c) {
    const DispatchChunk& chunk = saved.chunks[c];
    gathered[c] = regrouped(context, gathered[c], chunk.to_ranks);
    if (exchanges())
      arriving[c] = send(context, chunk, gathered[c], "dispatch");
    else
      arriving[c].rows = gathered[c].rows(0, chunk.own_rows);
  }
  if (rebalancer_) {
    rebalancer_->bring(context, experts.parameters(), saved.rebalanced);
    for (DispatchChunk& chunk : saved.chunks) {
      chunk.saved.guests = saved.rebalanced.guests;
      chunk.saved.guest_rows = chunk.guest_rows;
    }
  }
  beside();
  if (exchanges()) context.exchange_under_way();
  std::vector<Tensor> leaving(saved.chunks.size());
  for (size_t c = 0; c < saved.chunks.size(); ++c) {
    DispatchChunk& chunk = saved.chunks[c];
    wait(arriving[c]);
    const Tensor rows = regrouped(context, arriving[c].rows, chunk.to_experts);
    const Tensor y = experts.forward(context, rows, chunk.expert_rows, chunk.saved);
    leaving[c] = regrouped(context, y, chunk.from_experts);
    if (exchanges())
      returning[c] = send_back(context, chunk, leaving[c], "combine");
    else
      returning[c].rows = leaving[c];
  }
  if (exchanges()) context.exchange_under_way();
  Tensor out = context.activation({tokens, hidden}, "combined tokens");
  for (size_t c = 0; c < saved.chunks.size(); ++c) {
    DispatchChunk& chunk = saved.chunks[c];
    wait(returning[c]);
    chunk.expert_out =
        regrouped(context, summed(context, returning[c].rows, chunk.own_rows), chunk.from_ranks);
    RangeAttr range = slice.range;
    range.first = chunk.first_token;
    range.count = chunk.tokens;
    context.launch(combine(chunk.expert_out, slice.weights, slice.position, out, range));
  }
  Rebalancer::arrived(saved.rebalanced);
  return out;
}

Tensor AllToAllDispatcher::backward(Context& context, const Routing& routing, const Tensor& d_out,
                                    Experts& experts, const std::function<void()>& beside,
                                    const Tensor& d_weights, DispatchSaved& saved) {
  const int64_t tokens = d_out.shape[0], hidden = d_out.shape[1];
  const size_t chunks = saved.chunks.size();
  const Slice slice = slice_of(routing, saved, tokens);
  const Tensor d_slice = d_weights.rows(config_.slice * tokens, tokens);
  const auto range_of = [&](const DispatchChunk& chunk) {
    RangeAttr range = slice.range;
    range.first = chunk.first_token;
    range.count = chunk.tokens;
    return range;
  };
  const auto wait = [&](InFlight& flight) {
    if (exchanges()) context.device.wait(context.streams.compute, flight.arrived);
    flight.between.clear();
  };
  std::vector<Tensor> leaving(chunks), sent_back(chunks);
  std::vector<InFlight> arriving(chunks), returning(chunks);
  for (size_t c = 0; c < chunks; ++c) {
    DispatchChunk& chunk = saved.chunks[c];
    leaving[c] = context.memory.allocate({chunk.own_rows, hidden}, d_out.dtype,
                                         MemoryClass::communication, "gradients of rows");
    context.launch(combine_backward(d_out, chunk.expert_out, slice.weights, slice.position,
                                    leaving[c], d_slice, range_of(chunk)));
    chunk.expert_out = {};
    leaving[c] = regrouped(context, leaving[c], chunk.to_ranks);
    if (exchanges())
      arriving[c] = send(context, chunk, leaving[c], "combine backward");
    else
      arriving[c].rows = leaving[c];
  }
  beside();
  if (exchanges()) context.exchange_under_way();
  for (size_t c = 0; c < chunks; ++c) {
    DispatchChunk& chunk = saved.chunks[c];
    wait(arriving[c]);
    const Tensor rows = regrouped(context, arriving[c].rows, chunk.to_experts);
    const Tensor dx = experts.backward(context, chunk.saved, rows, chunk.expert_rows);
    chunk.saved = {};
    sent_back[c] = regrouped(context, dx, chunk.from_experts);
    if (exchanges())
      returning[c] = send_back(context, chunk, sent_back[c], "dispatch backward");
    else
      returning[c].rows = sent_back[c];
  }
  if (rebalancer_) rebalancer_->give_back(context, saved.rebalanced);
  if (exchanges()) context.exchange_under_way();
  Tensor dx = context.activation({tokens, hidden}, "gradient of dispatched tokens");
  for (size_t c = 0; c < chunks; ++c) {
    DispatchChunk& chunk = saved.chunks[c];
    wait(returning[c]);
    const Tensor rows =
        regrouped(context, summed(context, returning[c].rows, chunk.own_rows), chunk.from_ranks);
    context.launch(permute_backward(rows, slice.position, dx, range_of(chunk)));
  }
  return dx;
}

void AllToAllDispatcher::settle(Context& context, DispatchSaved& saved) {
  if (rebalancer_) rebalancer_->settle(context, saved.rebalanced);
}

}  // namespace moetwin
