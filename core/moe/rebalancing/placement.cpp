#include "core/moe/rebalancing/placement.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "core/moe/rebalancing/expert_packing.h"
#include "core/moe/rebalancing/index.h"
#include "core/ops/dispatch.h"

namespace moetwin {

namespace {

double fullest(const std::vector<double>& loads, const ExpertPlaces& places, int64_t ranks) {
  std::vector<double> rank(at(ranks), 0);
  const int64_t local = static_cast<int64_t>(places.size()) / ranks;
  for (size_t e = 0; e < places.size(); ++e) rank[at(places[e] / local)] += loads[e];
  return *std::max_element(rank.begin(), rank.end());
}

/// The rank for each pack: within nodes, pairs with most experts in common first.
std::vector<int64_t> ranks_of(const std::vector<std::vector<int64_t>>& packs,
                              const ExpertPlaces& now, const PlacementShape& shape) {
  const auto n = static_cast<int64_t>(packs.size()), on_node = n / shape.nodes;
  const int64_t local = static_cast<int64_t>(now.size()) / n;
  std::vector<std::tuple<int64_t, int64_t, int64_t>> pairs;  // fewest differences, pack, rank
  for (int64_t p = 0; p < n; ++p)
    for (int64_t r = p / on_node * on_node; r < (p / on_node + 1) * on_node; ++r) {
      const auto here = [&](int64_t e) { return now[at(e)] / local == r; };
      pairs.emplace_back(-std::count_if(packs[at(p)].begin(), packs[at(p)].end(), here), p, r);
    }
  std::sort(pairs.begin(), pairs.end());
  std::vector<int64_t> rank(at(n), -1);
  std::vector<bool> taken(at(n), false);
  for (const auto& [differences, p, r] : pairs) {
    if (rank[at(p)] >= 0 || taken[at(r)]) continue;
    rank[at(p)] = r;
    taken[at(r)] = true;
  }
  return rank;
}

}  // namespace

ExpertPlaces first_places(int64_t experts) {
  ExpertPlaces places(at(experts));
  std::iota(places.begin(), places.end(), 0);
  return places;
}

ExpertPlaces choose_places(const std::vector<double>& loads, const ExpertPlaces& now,
                           const PlacementShape& shape) {
  const auto experts = static_cast<int64_t>(loads.size());
  const int64_t local = experts / shape.ranks;
  const double mean =
      std::accumulate(loads.begin(), loads.end(), 0.0) / static_cast<double>(shape.ranks);
  const double before = fullest(loads, now, shape.ranks);
  if (before <= shape.threshold * mean) return now;
  const ExpertPacking packing =
      pack_experts(loads, {experts, shape.groups, shape.nodes, shape.ranks});
  std::vector<std::vector<int64_t>> packs(at(shape.ranks));
  for (int64_t i = 0; i < experts; ++i)
    packs[at(i / local)].push_back(packing.physical[at(i)].item);
  const std::vector<int64_t> rank = ranks_of(packs, now, shape);
  ExpertPlaces places(at(experts), -1);
  std::vector<bool> taken(at(experts), false);
  // Who stays on a rank keeps the slot.
  for (size_t p = 0; p < packs.size(); ++p)
    for (const int64_t e : packs[p])
      if (now[at(e)] / local == rank[p]) {
        places[at(e)] = now[at(e)];
        taken[at(now[at(e)])] = true;
      }
  for (size_t p = 0; p < packs.size(); ++p) {
    int64_t place = rank[p] * local;
    for (const int64_t e : packs[p]) {
      if (places[at(e)] >= 0) continue;
      while (taken[at(place)]) ++place;
      places[at(e)] = place;
      taken[at(place)] = true;
    }
  }
  return fullest(loads, places, shape.ranks) < before ? places : now;
}

void move_experts(Context& context, Communicator& ep, const ExpertPlaces& from,
                  const ExpertPlaces& to, const std::vector<Tensor>& tensors) {
  const auto experts = static_cast<int64_t>(from.size());
  const int64_t ranks = ep.size(), me = ep.rank(), local = experts / ranks;
  // By old and new place of what leaves this rank (in order of its new place), and of what comes
  // (in order of the sender, then of the new place).
  std::vector<std::pair<int64_t, int64_t>> leaving, coming;
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t old = from[at(e)], place = to[at(e)];
    if (old == place) continue;
    if (old / local == me) leaving.emplace_back(place, old % local);
    if (place / local == me) coming.emplace_back(old / local, place);
  }
  std::sort(leaving.begin(), leaving.end());
  std::sort(coming.begin(), coming.end());
  std::vector<int64_t> send_rows(at(ranks), 0), send_begin(at(ranks), 0), recv_rows(at(ranks), 0),
      recv_begin(at(ranks), 0), pack, unpack;
  for (size_t i = 0; i < leaving.size(); ++i) {
    ++send_rows[at(leaving[i].first / local)];
    pack.insert(pack.end(), {leaving[i].second, static_cast<int64_t>(i), 1});
  }
  for (size_t i = 0; i < coming.size(); ++i) {
    ++recv_rows[at(coming[i].first)];
    unpack.insert(unpack.end(), {static_cast<int64_t>(i), coming[i].second % local, 1});
  }
  for (size_t r = 1; r < at(ranks); ++r) {
    send_begin[r] = send_begin[r - 1] + send_rows[r - 1];
    recv_begin[r] = recv_begin[r - 1] + recv_rows[r - 1];
  }
  const auto share = [](std::vector<int64_t> values) {
    return std::make_shared<const std::vector<int64_t>>(std::move(values));
  };
  const HostSizes rows_out = share(send_rows), begin_out = share(send_begin),
                  rows_in = share(recv_rows), begin_in = share(recv_begin), packing = share(pack),
                  unpacking = share(unpack);
  const Stream stream = context.streams.dispatch;
  for (const Tensor& tensor : tensors) {
    const Tensor rows = tensor.reshaped({local, tensor.elements() / local});
    const auto room = [&](size_t n, const char* name) {
      return context.memory.allocate({static_cast<int64_t>(n), rows.shape[1]}, rows.dtype,
                                     MemoryClass::communication, name);
    };
    const Tensor out = room(leaving.size(), "moving experts"), in = room(coming.size(), "experts");
    if (!leaving.empty()) context.launch(regroup(rows, out, packing));
    context.order(context.streams.compute, stream);
    ep.all_to_all_v(out, in, rows_out, begin_out, rows_in, begin_in, stream, "moving experts");
    context.order(stream, context.streams.compute);
    if (!coming.empty()) context.launch(regroup(in, rows, unpacking));
  }
}

}  // namespace moetwin
