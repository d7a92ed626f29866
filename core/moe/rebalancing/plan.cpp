#include "core/moe/rebalancing/plan.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"

namespace moetwin {

int64_t GroupCounts::from(int64_t source, int64_t expert) const {
  int64_t sum = 0;
  for (int64_t c = 0; c < chunks; ++c) sum += at(source, expert, c);
  return sum;
}

int64_t GroupCounts::of(int64_t expert) const {
  int64_t sum = 0;
  for (int64_t s = 0; s < ranks; ++s) sum += from(s, expert);
  return sum;
}

GroupCounts GroupCounts::by_place(const std::vector<int64_t>& places) const {
  GroupCounts moved = *this;
  for (int64_t s = 0; s < ranks; ++s)
    for (int64_t e = 0; e < experts; ++e)
      for (int64_t c = 0; c < chunks; ++c)
        moved.rows[static_cast<size_t>((s * experts + places[static_cast<size_t>(e)]) * chunks +
                                       c)] = at(s, e, c);
  return moved;
}

std::vector<int64_t> GroupCounts::heaviest_first() const {
  std::vector<int64_t> order(static_cast<size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return of(a) > of(b); });
  return order;
}

std::vector<int64_t> GroupCounts::at_home() const {
  std::vector<int64_t> sums(static_cast<size_t>(ranks), 0);
  for (int64_t e = 0; e < experts; ++e) sums[static_cast<size_t>(home(e))] += of(e);
  return sums;
}

ExpertPlan ExpertPlan::nothing(const GroupCounts& counts) {
  ExpertPlan plan;
  plan.shares.resize(static_cast<size_t>(counts.experts));
  plan.shadowed.assign(static_cast<size_t>(counts.experts), false);
  plan.guests.resize(static_cast<size_t>(counts.ranks));
  return plan;
}

bool ExpertPlan::moves() const {
  return std::any_of(guests.begin(), guests.end(), [](const auto& g) { return !g.empty(); });
}

bool ExpertPlan::everywhere() const {
  return std::any_of(shadowed.begin(), shadowed.end(), [](bool s) { return s; });
}

int64_t ExpertPlan::slot(const GroupCounts& counts, int64_t rank, int64_t expert) const {
  const int64_t local = counts.local_experts();
  if (counts.home(expert) == rank) return expert - rank * local;
  const std::vector<int64_t>& here = guests[static_cast<size_t>(rank)];
  const auto found = std::lower_bound(here.begin(), here.end(), expert);
  require(found != here.end() && *found == expert, "rows go where their expert is");
  return local + (found - here.begin());
}

int64_t ExpertPlan::slots(const GroupCounts& counts, int64_t rank) const {
  return counts.local_experts() + static_cast<int64_t>(guests[static_cast<size_t>(rank)].size());
}

void cut_rows(const ExpertPlan& plan, const GroupCounts& counts, int64_t chunk,
              const std::function<void(const RowCut&)>& visit) {
  for (int64_t e = 0; e < counts.experts; ++e) {
    const std::vector<WorkShare>& shares = plan.shares[static_cast<size_t>(e)];
    const bool shadowed = plan.shadowed[static_cast<size_t>(e)];
    if (shares.empty()) {
      for (int64_t s = 0; s < counts.ranks; ++s)
        if (const int64_t rows = counts.at(s, e, chunk); rows > 0)
          visit({s, e, shadowed ? s : counts.home(e), rows});
      continue;
    }
    size_t share = 0;
    int64_t left = shares.front().rows;
    for (int64_t s = 0; s < counts.ranks; ++s)
      for (int64_t c = 0; c < counts.chunks; ++c)
        for (int64_t rows = counts.at(s, e, c); rows > 0;) {
          while (left == 0) left = shares.at(++share).rows;
          const int64_t cut = std::min(rows, left);
          if (c == chunk) visit({s, e, shares[share].rank, cut});
          rows -= cut;
          left -= cut;
        }
  }
}

}  // namespace moetwin
