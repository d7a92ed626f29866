#include "core/scenario/rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/scenario/rule_list.h"
#include "core/scenario/sizes.h"

namespace moetwin {

std::string divisors_text(int64_t n) {
  std::vector<int64_t> all;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    all.push_back(d);
    if (d != n / d) all.push_back(n / d);
  }
  std::sort(all.begin(), all.end());
  if (all.size() <= 12) return fmt::format("{}", fmt::join(all, ", "));
  return fmt::format("{}, ..., {}", fmt::join(all.begin(), all.begin() + 10, ", "), all.back());
}

std::vector<Rule> scenario_rules() {
  std::vector<Rule> rules;
  add_model_rules(rules);
  add_attention_rules(rules);
  add_pipeline_rules(rules);
  add_moe_rules(rules);
  add_rebalancing_rules(rules);
  add_run_rules(rules);
  add_sharding_rules(rules);
  return rules;
}

void fill_derived_defaults(Scenario* scenario, const Problems& problems) {
  const std::string& param_dtype = scenario->distributed_config.fsdp.mixed_precision.param_dtype;
  if (param_dtype != "auto" && !problems.is_set(kTraining + "dtype"))
    scenario->training_config.dtype = param_dtype;
  if (problems.is_set(kTraining + "global_batch_size") ||
      problems.failed(kTraining + "micro_batch_size"))
    return;
  const DistributedConfig& sizes = scenario->distributed_config;
  if (problems.failed("distributed_config") || !size_problems(sizes, 0, 1).empty()) return;
  TrainingConfig& training = scenario->training_config;
  const int64_t unit = parallel_sizes(sizes, 0).batch_ranks() * training.micro_batch_size;
  training.global_batch_size = (training.global_batch_size + unit - 1) / unit * unit;
}

void check_rules(const Scenario& scenario, Problems* problems) {
  const Problems before = *problems;  // one rule's fault does not hide another rule
  const auto blame = [&](const std::vector<std::string>& keys) {
    for (const std::string& key : keys)
      if (before.is_set(key)) return key;
    return keys.front();
  };
  const bool any_failed = before.failed("distributed_config") ||
                          before.failed(kMoe + "num_experts") ||
                          before.failed(kMoe + "expert_hidden_size");
  if (!any_failed) {
    const ModelConfig& model = scenario.model_config;
    for (const SizeProblem& problem : size_problems(
             scenario.distributed_config, model.moe_layer_config.num_experts, model.expert_width()))
      problems->error(problem.key, problem.message);
  }
  const bool sizes_good = !any_failed && !problems->failed("distributed_config");
  for (const Rule& rule : scenario_rules()) {
    const bool skip = std::any_of(rule.keys.begin(), rule.keys.end(), [&](const std::string& key) {
      return before.failed(key) || (key == "distributed_config" && !sizes_good);
    });
    if (skip) continue;
    const std::string fault = rule.fault(scenario, before);
    if (fault.empty()) continue;
    if (rule.warning)
      problems->warning(blame(rule.keys), fault);
    else
      problems->error(blame(rule.keys), fault);
  }
}

void check_backend(const Scenario& scenario, const std::string& backend) {
  if (backend == "cuda" && scenario.training_config.dtype == "fp64")
    throw Error(ErrorClass::configuration,
                fmt::format("{}: training_config.dtype: fp64 is offered on the modelled GPU only "
                            "(--backend sim); legal on cuda: fp32, bf16, fp16",
                            scenario.path.empty() ? scenario.name : scenario.path));
}

}  // namespace moetwin
