#include <algorithm>

#include "core/moe/rebalancing/index.h"
#include "core/moe/rebalancing/policy.h"

namespace moetwin {
namespace {

class Shadowing : public RebalancingPolicy {
 public:
  explicit Shadowing(const RebalancingSetup& setup) : setup_(setup) {}

  ExpertPlan plan(const GroupCounts& counts, int64_t) override {
    ExpertPlan plan = ExpertPlan::nothing(counts);
    // Rows a rank works on, and those of them that come from other ranks.
    std::vector<int64_t> load = counts.at_home(), received = load;
    for (int64_t e = 0; e < counts.experts; ++e)
      received[at(counts.home(e))] -= counts.from(counts.home(e), e);
    const std::vector<int64_t> order = counts.heaviest_first();
    double latency = latency_of(load, received, 0);
    for (size_t shadowed = 0; shadowed < order.size(); ++shadowed) {
      const int64_t e = order[shadowed], home = counts.home(e);
      for (int64_t r = 0; r < counts.ranks; ++r) {
        const int64_t own = counts.from(r, e);
        if (r == home) continue;
        load[at(home)] -= own;
        received[at(home)] -= own;
        load[at(r)] += own;
      }
      const double with = latency_of(load, received, static_cast<double>(shadowed + 1));
      if (with >= latency) break;
      latency = with;
      plan.shadowed[at(e)] = true;
      for (int64_t r = 0; r < counts.ranks; ++r)
        if (r != home) plan.guests[at(r)].push_back(e);
    }
    for (std::vector<int64_t>& g : plan.guests) std::sort(g.begin(), g.end());
    return plan;
  }

 private:
  /// Of forward and backward: three products' worth of the fullest rank's rows, four exchanges, and
  /// each shadow's weights there and gradients back.
  double latency_of(const std::vector<int64_t>& load, const std::vector<int64_t>& received,
                    double shadows) const {
    const auto most = [](const std::vector<int64_t>& of) {
      return static_cast<double>(*std::max_element(of.begin(), of.end()));
    };
    return 3 * most(load) * setup_.row_flop / setup_.config.flop_per_second +
           (4 * most(received) * setup_.row_bytes + 2 * shadows * setup_.expert_bytes) /
               setup_.config.network_bytes_per_second;
  }
  RebalancingSetup setup_;
};

}  // namespace

std::unique_ptr<RebalancingPolicy> make_shadowing(const RebalancingSetup& setup) {
  return std::make_unique<Shadowing>(setup);
}

}  // namespace moetwin
