// Sizes of the exchange where a plan says which rank works on which rows.

#include <algorithm>
#include <tuple>

#include "core/moe/dispatcher.h"
#include "core/ops/dispatch.h"

namespace moetwin {

GroupCounts AllToAllDispatcher::group_counts(const std::vector<int64_t>& host) const {
  const int64_t experts = config_.experts, all = plan_chunks(), chunks = config_.chunks;
  const int64_t* received = host.data() + experts + 1 + experts * all + 1;
  GroupCounts counts{ranks_, experts, chunks, {}};
  counts.rows.reserve(static_cast<size_t>(ranks_ * experts * chunks));
  for (int64_t s = 0; s < ranks_; ++s)
    for (int64_t e = 0; e < experts; ++e)
      for (int64_t c = 0; c < chunks; ++c)
        counts.rows.push_back(
            received[(s * experts + e) * all + slice_of_[static_cast<size_t>(s)] * chunks + c]);
  return counts.by_place(rebalancer_->places());
}

void AllToAllDispatcher::lay_out_by_plan(const GroupCounts& counts, int64_t chunk_index,
                                         const ExpertPlan& plan, DispatchChunk& chunk) const {
  const int64_t me = ep_->rank(), slots = plan.slots(counts, me);
  struct Piece {
    int64_t rank, slot, rows, from;
  };
  std::vector<Piece> leaving;
  std::vector<int64_t> arriving(static_cast<size_t>(ranks_ * slots), 0);
  // Rows lie in order of the experts' numbers, whatever their places are.
  std::vector<int64_t> next(static_cast<size_t>(config_.experts));
  chunk.own_rows = 0;
  for (const int64_t place : rebalancer_->places()) {
    next[static_cast<size_t>(place)] = chunk.own_rows;
    chunk.own_rows += counts.at(me, place, chunk_index);
  }
  cut_rows(plan, counts, chunk_index, [&](const RowCut& cut) {
    if (cut.source == me) {
      int64_t& from = next[static_cast<size_t>(cut.expert)];
      leaving.push_back({cut.rank, plan.slot(counts, cut.rank, cut.expert), cut.rows, from});
      from += cut.rows;
    }
    if (cut.rank == me)
      arriving[static_cast<size_t>(cut.source * slots + plan.slot(counts, me, cut.expert))] +=
          cut.rows;
  });
  // Rows leave in order of rank and place there.
  const auto before = [](const Piece& a, const Piece& b) {
    return std::tie(a.rank, a.slot) < std::tie(b.rank, b.slot);
  };
  bool in_order = true;
  std::stable_sort(leaving.begin(), leaving.end(), before);
  std::vector<int64_t> rows(static_cast<size_t>(ranks_), 0), begin(rows.size(), 0), forth, back;
  int64_t to = 0;
  for (const Piece& p : leaving) {
    in_order = in_order && p.from == to;
    rows[static_cast<size_t>(p.rank)] += p.rows;
    forth.insert(forth.end(), {p.from, to, p.rows});
    back.insert(back.end(), {to, p.from, p.rows});
    to += p.rows;
  }
  for (size_t r = 1; r < begin.size(); ++r) begin[r] = begin[r - 1] + rows[r - 1];
  const auto share = [](std::vector<int64_t> values) {
    return std::make_shared<const std::vector<int64_t>>(std::move(values));
  };
  if (!in_order) {
    chunk.to_ranks = share(std::move(forth));
    chunk.from_ranks = share(std::move(back));
  }
  chunk.send_rows = share(std::move(rows));
  chunk.send_begin = share(begin);
  chunk.back_begin = share(std::move(begin));
  lay_out_arrivals(
      slots,
      [&](int64_t source, int64_t slot) {
        return arriving[static_cast<size_t>(source * slots + slot)];
      },
      chunk);
  if (slots == local_experts_) return;
  const auto first_guest = chunk.expert_rows->begin() + local_experts_;
  chunk.guest_rows = share({first_guest, chunk.expert_rows->end()});
  chunk.expert_rows = share({chunk.expert_rows->begin(), first_guest});
}

}  // namespace moetwin
