#include "core/record/routing_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace moetwin {

namespace {

template <class Rank>
std::string rows(int64_t step, int64_t layer, const Rank& rank, const std::vector<int64_t>& counts,
                 const std::vector<int64_t>& kept) {
  fmt::memory_buffer out;
  for (size_t e = 0; e < counts.size(); ++e)
    fmt::format_to(std::back_inserter(out), "{},{},{},{},{},{}\n", step, layer, rank, e, counts[e],
                   kept.empty() ? counts[e] : kept[e]);
  return fmt::to_string(out);
}

}  // namespace

bool RoutingVolume::rank_rows(int64_t step, int64_t rank, int64_t rows_of_all_ranks) const {
  if (!ranks.empty()) return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  const int64_t every = (rows_of_all_ranks + kRoutingRowsPerStep - 1) / kRoutingRowsPerStep;
  return every <= 1 || step % every == 0;
}

std::string routing_csv_header() { return "step,layer,rank,expert,assigned,kept\n"; }

std::string routing_csv_totals(int64_t step, const LayerRow& layer) {
  return rows(step, layer.layer, "all", layer.counts, layer.kept);
}

std::string routing_csv_rank(int64_t step, int64_t rank, const LayerStep& layer) {
  return rows(step, layer.layer, rank, layer.counts, layer.kept);
}

}  // namespace moetwin
