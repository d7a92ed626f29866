#include "core/moe/rebalancing/policy.h"

#include "core/device/tensor.h"

namespace moetwin {

namespace {
struct Row {
  const char* kind;
  std::unique_ptr<RebalancingPolicy> (*make)(const RebalancingSetup&);
};
/// Experts move between steps (core/train/expert_moves.h); within one they work at home.
class AtHome : public RebalancingPolicy {
 public:
  ExpertPlan plan(const GroupCounts& counts, int64_t) override {
    return ExpertPlan::nothing(counts);
  }
};
std::unique_ptr<RebalancingPolicy> make_at_home(const RebalancingSetup&) {
  return std::make_unique<AtHome>();
}
constexpr Row kPolicies[] = {{"placement", make_at_home},
                             {"replication", make_replication},
                             {"shadowing", make_shadowing},
                             {"spill", make_spill}};
}  // namespace

bool by_interval(const RebalancingConfig& config) {
  return config.kind == "placement" || config.kind == "replication";
}

RebalancingSetup rebalancing_setup(const Scenario& scenario) {
  const ModelConfig& model = scenario.model_config;
  const auto hidden = static_cast<double>(model.hidden_size);
  const auto width = static_cast<double>(model.expert_width());
  const auto size = static_cast<double>(dtype_size(parse_dtype(scenario.training_config.dtype)));
  const double matrices = model.moe_layer_config.expert_activation == "swiglu" ? 3 : 2;
  RebalancingSetup setup;
  setup.config = scenario.rebalancing;
  setup.row_bytes = hidden * size;
  setup.row_flop = 2 * matrices * hidden * width;
  setup.expert_bytes = matrices * hidden * width * size;
  return setup;
}

std::unique_ptr<RebalancingPolicy> make_policy(const RebalancingSetup& setup) {
  for (const Row& row : kPolicies)
    if (setup.config.kind == row.kind) return row.make(setup);
  return nullptr;
}

}  // namespace moetwin
