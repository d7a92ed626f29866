#include <algorithm>
#include <numeric>

#include "core/moe/rebalancing/expert_packing.h"
#include "core/moe/rebalancing/index.h"
#include "core/moe/rebalancing/policy.h"

namespace moetwin {
namespace {

class Replication : public RebalancingPolicy {
 public:
  explicit Replication(const RebalancingConfig& config)
      : interval_(config.interval_steps), redundant_(config.redundant_experts) {}

  ExpertPlan plan(const GroupCounts& counts, int64_t step) override {
    if (loads_.empty()) {
      loads_.assign(at(counts.experts), 0);
      hosts_.resize(at(counts.experts));
      guests_.resize(at(counts.ranks));
      first_ = step_ = step;
    }
    if (step != step_) {
      step_ = step;
      if (step - first_ >= interval_) choose(counts);
    }
    for (int64_t e = 0; e < counts.experts; ++e) loads_[at(e)] += static_cast<double>(counts.of(e));
    ExpertPlan plan = ExpertPlan::nothing(counts);
    plan.for_the_step = true;
    plan.guests = guests_;
    for (int64_t e = 0; e < counts.experts; ++e) {
      const std::vector<int64_t>& hosts = hosts_[at(e)];
      const auto copies = static_cast<int64_t>(hosts.size());
      if (copies < 2) continue;
      const int64_t rows = counts.of(e);
      for (int64_t c = 0; c < copies; ++c)
        plan.shares[at(e)].push_back({hosts[at(c)], rows * (c + 1) / copies - rows * c / copies});
    }
    return plan;
  }

 private:
  void choose(const GroupCounts& counts) {
    const int64_t room = redundant_ / counts.ranks;
    const Copies wanted = replicate_heaviest(loads_, counts.experts + redundant_, counts.ranks);
    const auto share = [&](int64_t e) {
      return loads_[at(e)] / static_cast<double>(wanted.count[at(e)]);
    };
    std::vector<double> load(at(counts.ranks), 0);
    for (std::vector<int64_t>& g : guests_) g.clear();
    for (int64_t e = 0; e < counts.experts; ++e) {
      load[at(counts.home(e))] += share(e);
      hosts_[at(e)] = {counts.home(e)};
    }
    std::vector<Copy> replicas(wanted.copies.begin() + counts.experts, wanted.copies.end());
    std::stable_sort(replicas.begin(), replicas.end(),
                     [&](const Copy& a, const Copy& b) { return share(a.item) > share(b.item); });
    for (const Copy& replica : replicas) {
      std::vector<int64_t>& hosts = hosts_[at(replica.item)];
      int64_t best = -1;
      for (int64_t r = 0; r < counts.ranks; ++r) {
        if (static_cast<int64_t>(guests_[at(r)].size()) == room) continue;
        if (std::find(hosts.begin(), hosts.end(), r) != hosts.end()) continue;
        if (best < 0 || load[at(r)] < load[at(best)]) best = r;
      }
      if (best < 0) continue;  // ranks with room have the expert: the other copies do its work
      hosts.push_back(best);
      guests_[at(best)].push_back(replica.item);
      load[at(best)] += share(replica.item);
    }
    for (std::vector<int64_t>& hosts : hosts_) std::sort(hosts.begin(), hosts.end());
    for (std::vector<int64_t>& g : guests_) std::sort(g.begin(), g.end());
    std::fill(loads_.begin(), loads_.end(), 0);
    first_ = step_;
  }

  int64_t interval_, redundant_;
  int64_t first_ = 0, step_ = 0;  ///< first step of the interval; the one at work
  std::vector<double> loads_;     ///< of the interval
  std::vector<std::vector<int64_t>> hosts_, guests_;
};

}  // namespace

std::unique_ptr<RebalancingPolicy> make_replication(const RebalancingSetup& setup) {
  return std::make_unique<Replication>(setup.config);
}

}  // namespace moetwin
