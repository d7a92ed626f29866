#include "tests/equivalence/rebalanced_layouts.h"

namespace moetwin::test {

namespace {

RebalancingConfig cure(const std::string& kind, int64_t redundant = 0) {
  RebalancingConfig r;
  r.kind = kind;
  r.interval_steps = 2;
  r.redundant_experts = redundant;
  r.network_bytes_per_second = 1e12;  // weights are cheap: shadows are worth it
  r.flop_per_second = 1e9;
  r.imbalance_threshold = 1;
  r.min_tokens = 1;
  return r;
}

Layout of(int64_t dp, int64_t ep, int64_t experts, int64_t top_k) {
  Layout l;
  l.dp = dp, l.ep = ep, l.experts = experts, l.top_k = top_k;
  return l;
}

std::vector<RebalancedLayout> make() {
  std::vector<RebalancedLayout> all;
  for (const char* kind : {"placement", "replication", "shadowing", "spill"}) {
    const auto add = [&](const std::string& name, const Layout& layout,
                         const std::string& recompute = "none") {
      all.push_back({std::string(kind) + ", " + name, layout,
                     cure(kind, std::string(kind) == "replication" ? layout.ep : 0), recompute});
    };
    add("EP=4", of(1, 4, 8, 2));
    Layout l = of(2, 2, 4, 2);  // two copies of the experts, accumulation, ZeRO-1, chunks
    l.accumulation = 4, l.overlap = true, l.variant = "modern";
    l.zero = std::string(kind) == "placement" ? 0 : 1;
    add("EDP=2 EP=2", l);
    l = of(2, 4, 8, 1);
    l.accumulation = 2, l.capacity = "position", l.variant = "noisy";
    add("with recompute", l, "full");
    l = of(1, 2, 4, 2);
    l.tp = 2, l.etp = 1, l.pipeline = "1f1b-2", l.accumulation = 2, l.variant = "sigmoid-bias";
    l.sequence_parallel = true;
    add("TP=2 PP=2", l);
  }
  return all;
}

}  // namespace

Scenario RebalancedLayout::scenario(int64_t steps) const {
  Scenario s = layout_scenario(layout, steps);
  s.rebalancing = rebalancing;
  s.training_config.recompute = recompute;
  return s;
}

const std::vector<RebalancedLayout>& rebalanced_layouts() {
  static const std::vector<RebalancedLayout> layouts = make();
  return layouts;
}

}  // namespace moetwin::test
