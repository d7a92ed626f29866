#pragma once
// Helpers of the rule tables. Only core/scenario/rules*.cpp include this.

#include <string>
#include <vector>

#include "core/scenario/key_prefixes.h"
#include "core/scenario/rules.h"

namespace moetwin {

/// "1, 2, 4, ..., 4096": the divisors of n, at most a dozen of them.
std::string divisors_text(int64_t n);

void add_model_rules(std::vector<Rule>& rules);
void add_attention_rules(std::vector<Rule>& rules);
void add_pipeline_rules(std::vector<Rule>& rules);
void add_moe_rules(std::vector<Rule>& rules);
void add_rebalancing_rules(std::vector<Rule>& rules);
void add_run_rules(std::vector<Rule>& rules);
void add_sharding_rules(std::vector<Rule>& rules);

}  // namespace moetwin
