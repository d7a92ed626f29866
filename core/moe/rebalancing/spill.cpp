#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/moe/rebalancing/index.h"
#include "core/moe/rebalancing/policy.h"

namespace moetwin {
namespace {

class Spill : public RebalancingPolicy {
 public:
  explicit Spill(const RebalancingConfig& config) : config_(config) {}

  ExpertPlan plan(const GroupCounts& counts, int64_t) override {
    ExpertPlan plan = ExpertPlan::nothing(counts);
    // What a rank is sure to work on, and what of its own experts is not decided yet.
    std::vector<int64_t> assigned(at(counts.ranks), 0), pending = counts.at_home();
    const auto all =
        static_cast<double>(std::accumulate(pending.begin(), pending.end(), int64_t{0}));
    const double mean = all / static_cast<double>(counts.ranks);
    const auto most = static_cast<double>(*std::max_element(pending.begin(), pending.end()));
    if (most <= config_.imbalance_threshold * mean) return plan;
    const auto limit = static_cast<int64_t>(std::ceil(config_.tokens_factor * mean));
    const auto room = [&](int64_t r) { return limit - assigned[at(r)] - pending[at(r)]; };
    const std::vector<int64_t> order = counts.heaviest_first();
    for (const int64_t e : order) {
      const int64_t home = counts.home(e), rows = counts.of(e);
      pending[at(home)] -= rows;
      int64_t kept = std::clamp<int64_t>(room(home), 0, rows), left = rows - kept;
      std::vector<WorkShare>& shares = plan.shares[at(e)];
      std::vector<bool> asked(at(counts.ranks), false);
      asked[at(home)] = true;
      while (left > 0) {
        int64_t best = -1;
        for (int64_t r = 0; r < counts.ranks; ++r)
          if (!asked[at(r)] && (best < 0 || room(r) > room(best))) best = r;
        // Others have less room still.
        const int64_t piece = best < 0 ? 0 : std::min(left, room(best));
        if (piece < config_.min_tokens) break;
        asked[at(best)] = true;
        shares.push_back({best, piece});
        plan.guests[at(best)].push_back(e);
        assigned[at(best)] += piece;
        left -= piece;
      }
      kept += left;
      assigned[at(home)] += kept;
      if (!shares.empty()) shares.push_back({home, kept});
      std::sort(shares.begin(), shares.end(),
                [](const WorkShare& a, const WorkShare& b) { return a.rank < b.rank; });
    }
    for (std::vector<int64_t>& g : plan.guests) std::sort(g.begin(), g.end());
    return plan;
  }

 private:
  RebalancingConfig config_;
};

}  // namespace

std::unique_ptr<RebalancingPolicy> make_spill(const RebalancingSetup& setup) {
  return std::make_unique<Spill>(setup.config);
}

}  // namespace moetwin
