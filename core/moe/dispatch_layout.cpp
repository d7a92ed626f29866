// Sizes of the exchange, from counts on the host.

#include <algorithm>

#include "core/moe/dispatcher.h"
#include "core/ops/dispatch.h"

namespace moetwin {

namespace {
HostSizes share(std::vector<int64_t> values) {
  return std::make_shared<const std::vector<int64_t>>(std::move(values));
}
}  // namespace

void AllToAllDispatcher::lay_out(const std::vector<int64_t>& host, const MicroBatch& batch,
                                 int64_t tokens, DispatchSaved& saved) const {
  const int64_t experts = config_.experts, chunks = config_.chunks, all = plan_chunks();
  const int64_t* routed = host.data();
  const int64_t* kept = routed + experts + 1;
  // Without an exchange this rank is the only source of its experts' rows.
  const int64_t* received = exchanges() ? kept + experts * all + 1 : kept;
  saved.counts.routed.assign(routed, routed + experts);
  saved.counts.kept.assign(static_cast<size_t>(experts), 0);
  for (int64_t e = 0; e < experts; ++e)
    for (int64_t c = 0; c < all; ++c)
      saved.counts.kept[static_cast<size_t>(e)] += kept[e * all + c];
  saved.counts.received_rows = 0;
  saved.chunks.resize(static_cast<size_t>(chunks));
  GroupCounts of_group;
  if (rebalancer_) {
    of_group = group_counts(host);
    rebalancer_->plan(of_group, batch, saved.rebalanced);
  }
  for (int64_t c = 0; c < chunks; ++c) {
    DispatchChunk& chunk = saved.chunks[static_cast<size_t>(c)];
    chunk.first_token = chunk_begin(tokens, chunks, c);
    chunk.tokens = chunk_begin(tokens, chunks, c + 1) - chunk.first_token;
    if (rebalancer_)
      lay_out_by_plan(of_group, c, *saved.rebalanced.plan, chunk);
    else
      lay_out_at_home(kept, received, c, chunk);
    saved.counts.received_rows += chunk.received_rows;
  }
}

void AllToAllDispatcher::lay_out_at_home(const int64_t* kept, const int64_t* received, int64_t c,
                                         DispatchChunk& chunk) const {
  const int64_t local = local_experts_, all = plan_chunks();
  const int64_t mine = config_.slice * config_.chunks + c;
  std::vector<int64_t> column_rows(static_cast<size_t>(columns_), 0);
  for (int64_t e = 0; e < config_.experts; ++e)
    column_rows[static_cast<size_t>(e / local)] += kept[e * all + mine];
  std::vector<int64_t> column_begin(static_cast<size_t>(columns_), 0);
  for (int64_t i = 1; i < columns_; ++i)
    column_begin[static_cast<size_t>(i)] =
        column_begin[static_cast<size_t>(i - 1)] + column_rows[static_cast<size_t>(i - 1)];
  chunk.own_rows = column_begin.back() + column_rows.back();

  const auto n = static_cast<size_t>(ranks_);
  std::vector<int64_t> send_rows(n), send_begin(n), back_begin(n);
  for (int64_t r = 0; r < ranks_; ++r) {
    const auto i = static_cast<size_t>(r), column = static_cast<size_t>(r % columns_);
    send_rows[i] = column_rows[column];
    send_begin[i] = column_begin[column];
    back_begin[i] = r / columns_ * chunk.own_rows + column_begin[column];
  }
  chunk.send_rows = share(std::move(send_rows));
  chunk.send_begin = share(std::move(send_begin));
  chunk.back_begin = share(std::move(back_begin));
  lay_out_arrivals(
      local,
      [&](int64_t source, int64_t expert) {
        const int64_t slice = slice_of_[static_cast<size_t>(source)];
        return received[(source * local + expert) * all + slice * config_.chunks + c];
      },
      chunk);
}

void AllToAllDispatcher::lay_out_arrivals(int64_t slots,
                                          const std::function<int64_t(int64_t, int64_t)>& rows_of,
                                          DispatchChunk& chunk) const {
  const int64_t local = slots, sources = splits_ * ranks_;
  const int64_t split = expert_tp_ ? expert_tp_->rank() : 0;
  // Rows arrive by (expert-TP rank, EP rank, expert), the first two being the source.
  std::vector<int64_t> begin(static_cast<size_t>(sources)), recv_rows, recv_begin;
  std::vector<int64_t> expert_rows(static_cast<size_t>(local), 0);
  std::vector<int64_t> gathered(static_cast<size_t>(splits_), 0),
      gathered_begin(gathered.size(), 0);
  int64_t arrived = 0;
  for (int64_t source = 0; source < sources; ++source) {
    const auto q = static_cast<size_t>(source / ranks_);
    if (source % ranks_ == 0) gathered_begin[q] = arrived;
    begin[static_cast<size_t>(source)] = arrived;
    for (int64_t e = 0; e < local; ++e) {
      arrived += rows_of(source, e);
      expert_rows[static_cast<size_t>(e)] += rows_of(source, e);
    }
    gathered[q] = arrived - gathered_begin[q];
    if (static_cast<int64_t>(q) != split) continue;
    recv_begin.push_back(begin[static_cast<size_t>(source)] - gathered_begin[q]);
    recv_rows.push_back(arrived - begin[static_cast<size_t>(source)]);
  }
  chunk.received_rows = arrived;
  chunk.exchanged_rows = gathered[static_cast<size_t>(split)];

  if (sources > 1 && local > 1) {
    // Experts want (expert, source).
    std::vector<int64_t> forward, reverse, from = begin;
    int64_t to = 0;
    for (int64_t e = 0; e < local; ++e)
      for (int64_t source = 0; source < sources; ++source) {
        const int64_t rows = rows_of(source, e);
        if (rows > 0) {
          forward.insert(forward.end(), {from[static_cast<size_t>(source)], to, rows});
          reverse.insert(reverse.end(), {to, from[static_cast<size_t>(source)], rows});
        }
        from[static_cast<size_t>(source)] += rows;
        to += rows;
      }
    chunk.to_experts = share(std::move(forward));
    chunk.from_experts = share(std::move(reverse));
  }
  if (expert_tp_) {
    std::vector<int64_t> parts;
    for (int64_t q = 0; q < splits_; ++q) parts.push_back(q * chunk.exchanged_rows);
    chunk.own_to_all = share(std::vector<int64_t>(gathered.size(), chunk.exchanged_rows));
    chunk.own_begin = share(std::vector<int64_t>(gathered.size(), 0));
    chunk.parts_begin = share(std::move(parts));
    chunk.gathered_rows = share(std::move(gathered));
    chunk.gathered_begin = share(std::move(gathered_begin));
  }
  chunk.recv_rows = share(std::move(recv_rows));
  chunk.recv_begin = share(std::move(recv_begin));
  chunk.expert_rows = share(std::move(expert_rows));
}

}  // namespace moetwin
