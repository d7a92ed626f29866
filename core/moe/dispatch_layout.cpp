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

void AllToAllDispatcher::lay_out(const std::vector<int64_t>& host, int64_t tokens,
                                 DispatchSaved& saved) const {
  const int64_t experts = config_.experts, chunks = config_.chunks, local = local_experts_;
  const int64_t* routed = host.data();
  const int64_t* kept = routed + experts + 1;
  // Without an exchange this rank is the only source of its experts' rows.
  const int64_t* received = ep_ ? kept + experts * chunks + 1 : kept;
  saved.counts.routed.assign(routed, routed + experts);
  saved.counts.kept.assign(static_cast<size_t>(experts), 0);
  saved.counts.received_rows = 0;
  saved.chunks.resize(static_cast<size_t>(chunks));
  for (int64_t c = 0; c < chunks; ++c) {
    DispatchChunk& chunk = saved.chunks[static_cast<size_t>(c)];
    chunk.first_token = chunk_begin(tokens, chunks, c);
    chunk.tokens = chunk_begin(tokens, chunks, c + 1) - chunk.first_token;
    std::vector<int64_t> column_rows(static_cast<size_t>(columns_), 0);
    for (int64_t e = 0; e < experts; ++e) {
      const int64_t rows = kept[e * chunks + c];
      saved.counts.kept[static_cast<size_t>(e)] += rows;
      column_rows[static_cast<size_t>(e / local)] += rows;
    }
    std::vector<int64_t> column_begin(static_cast<size_t>(columns_), 0);
    for (int64_t i = 1; i < columns_; ++i)
      column_begin[static_cast<size_t>(i)] =
          column_begin[static_cast<size_t>(i - 1)] + column_rows[static_cast<size_t>(i - 1)];
    chunk.own_rows = column_begin.back() + column_rows.back();

    const auto n = static_cast<size_t>(ranks_);
    std::vector<int64_t> send_rows(n), send_begin(n), recv_rows(n), recv_begin(n), back_begin(n);
    std::vector<int64_t> expert_rows(static_cast<size_t>(local), 0);
    int64_t arrived = 0;
    for (int64_t r = 0; r < ranks_; ++r) {
      const auto i = static_cast<size_t>(r), column = static_cast<size_t>(r % columns_);
      send_rows[i] = column_rows[column];
      send_begin[i] = column_begin[column];
      back_begin[i] = r / columns_ * chunk.own_rows + column_begin[column];
      recv_begin[i] = arrived;
      for (int64_t e = 0; e < local; ++e) {
        const int64_t rows = received[(r * local + e) * chunks + c];
        recv_rows[i] += rows;
        expert_rows[static_cast<size_t>(e)] += rows;
      }
      arrived += recv_rows[i];
    }
    chunk.received_rows = arrived;
    saved.counts.received_rows += arrived;

    if (ranks_ > 1 && local > 1) {
      // Arrived by (source, expert); experts want (expert, source).
      std::vector<int64_t> forward, reverse;
      int64_t to = 0;
      for (int64_t e = 0; e < local; ++e) {
        for (int64_t r = 0; r < ranks_; ++r) {
          const int64_t rows = received[(r * local + e) * chunks + c];
          int64_t from = recv_begin[static_cast<size_t>(r)];
          for (int64_t before = 0; before < e; ++before)
            from += received[(r * local + before) * chunks + c];
          if (rows > 0) {
            forward.insert(forward.end(), {from, to, rows});
            reverse.insert(reverse.end(), {to, from, rows});
          }
          to += rows;
        }
      }
      chunk.to_experts = share(std::move(forward));
      chunk.from_experts = share(std::move(reverse));
    }
    chunk.send_rows = share(std::move(send_rows));
    chunk.send_begin = share(std::move(send_begin));
    chunk.recv_rows = share(std::move(recv_rows));
    chunk.recv_begin = share(std::move(recv_begin));
    chunk.back_begin = share(std::move(back_begin));
    chunk.expert_rows = share(std::move(expert_rows));
  }
}

}  // namespace moetwin
