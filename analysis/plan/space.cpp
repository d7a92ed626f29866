#include "analysis/plan/space.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/base/error.h"
#include "core/scenario/keys.h"
#include "core/scenario/sharding.h"

namespace moetwin {

namespace {

const std::string kDistributed = "distributed_config.", kTraining = "training_config.";

std::vector<int64_t> divisors(int64_t n, int64_t most) {
  std::vector<int64_t> found;
  for (int64_t d = 1; d <= std::min(n, most); ++d)
    if (n % d == 0) found.push_back(d);
  return found;
}

std::vector<int64_t> powers_of_two(int64_t most) {
  std::vector<int64_t> found;
  for (int64_t p = 1; p <= most; p *= 2) found.push_back(p);
  return found;
}

[[noreturn]] void refuse(const Axis& axis, const std::string& value, const char* rule) {
  throw Error(ErrorClass::configuration,
              fmt::format("--over {}: {} is not {}", axis.key, value, rule));
}

std::vector<int64_t> integers(const Axis& axis, int64_t least) {
  std::vector<int64_t> values;
  for (const std::string& text : axis.values) {
    int64_t value = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (fault != std::errc() || end != text.data() + text.size() || value < least)
      refuse(axis, text, least > 0 ? "an integer of at least 1" : "an integer of at least 0");
    values.push_back(value);
  }
  return values;
}

/// The axis's values, each one of the key's legal texts.
std::vector<std::string> of_choices(const Axis& axis) {
  const KeyTable table = scenario_keys();
  const std::vector<std::string>& legal = table.find_key(axis.key)->choices;
  for (const std::string& value : axis.values)
    if (value == "auto" || std::find(legal.begin(), legal.end(), value) == legal.end())
      throw Error(ErrorClass::configuration, fmt::format("--over {}: {} is not one of: {}",
                                                         axis.key, value, fmt::join(legal, ", ")));
  return axis.values;
}

std::vector<bool> flags(const Axis& axis) {
  std::vector<bool> values;
  for (const std::string& text : axis.values) {
    if (text != "true" && text != "false") refuse(axis, text, "true or false");
    values.push_back(text == "true");
  }
  return values;
}

std::vector<std::optional<double>> factors(const Axis& axis) {
  std::vector<std::optional<double>> values;
  for (const std::string& text : axis.values) {
    double value = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text == "null")
      values.emplace_back();
    else if (fault != std::errc() || end != text.data() + text.size() || !(value > 0))
      refuse(axis, text, "null or a number above 0");
    else
      values.emplace_back(value);
  }
  return values;
}

/// zero_stage and fsdp.sharding_strategy that say it: one of the two speaks, whatever the file says
/// that a winner extends.
std::pair<int64_t, std::string> sharding_words(const std::string& name) {
  DistributedConfig config;
  config.fsdp.sharding_strategy = name;
  const int stage = sharding_of(config).zero_stage;
  return stage < 0 ? std::pair<int64_t, std::string>{0, name}
                   : std::pair<int64_t, std::string>{stage, "auto"};
}

}  // namespace

PlanSpace plan_space(const Scenario& scenario, int64_t gpus_per_node) {
  const ModelConfig& model = scenario.model_config;
  const int64_t world = scenario.distributed_config.world_size;
  const int64_t experts = model.moe_layer_config.num_experts;
  PlanSpace space;
  for (const int64_t tp : divisors(world, gpus_per_node))
    if (model.num_attention_heads % tp == 0) space.tp.push_back(tp);
  space.pp = divisors(world, model.num_layers);
  std::erase_if(space.pp, [&](int64_t pp) { return model.num_layers % pp != 0; });
  space.ep = experts > 0 ? divisors(world, experts) : std::vector<int64_t>{1};
  std::erase_if(space.ep, [&](int64_t ep) { return experts > 0 && experts % ep != 0; });
  space.etp = experts > 0 ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0};
  space.sharding = {"NO_SHARD", "SHARD_OPTIMIZER", "SHARD_GRAD_OP", "FULL_SHARD"};
  if (world > gpus_per_node) space.sharding.push_back("HYBRID_SHARD");
  space.schedule = {"1f1b", "interleaved_1f1b", "zb_h1"};
  space.virtual_stages = {2, 4};
  space.micro_batch =
      powers_of_two(std::min<int64_t>(64, scenario.training_config.global_batch_size));
  space.recompute = {"none", "selective", "full"};
  space.cpu_offload = {false};
  space.overlap = experts > 0 ? std::vector<bool>{false, true} : std::vector<bool>{false};
  space.capacity_factor = {model.moe_layer_config.capacity_factor};
  space.rebalancing = {scenario.rebalancing.kind};
  return space;
}

void narrow(PlanSpace& space, const Axis& axis) {
  const std::string& key = axis.key;
  if (key == kDistributed + "tensor_parallel_size")
    space.tp = integers(axis, 1);
  else if (key == kDistributed + "pipeline_parallel_size")
    space.pp = integers(axis, 1);
  else if (key == kDistributed + "expert_parallel_size")
    space.ep = integers(axis, 1);
  else if (key == kDistributed + "expert_tensor_parallel_size")
    space.etp = integers(axis, 0);
  else if (key == kDistributed + "fsdp.sharding_strategy")
    space.sharding = of_choices(axis);
  else if (key == kDistributed + "fsdp.cpu_offload")
    space.cpu_offload = flags(axis);
  else if (key == kDistributed + "pipeline_schedule")
    space.schedule = of_choices(axis);
  else if (key == kDistributed + "virtual_pipeline_size")
    space.virtual_stages = integers(axis, 2);
  else if (key == kDistributed + "comm_optimization.all_to_all_overlap")
    space.overlap = flags(axis);
  else if (key == kTraining + "micro_batch_size")
    space.micro_batch = integers(axis, 1);
  else if (key == kTraining + "recompute")
    space.recompute = of_choices(axis);
  else if (key == "model_config.moe_layer_config.capacity_factor")
    space.capacity_factor = factors(axis);
  else if (key == "rebalancing.kind")
    space.rebalancing = of_choices(axis);
  else
    throw Error(
        ErrorClass::configuration,
        fmt::format(
            "--over {}: a plan does not choose this key (another value for all: --set); legal: {}"
            "tensor_parallel_size, pipeline_parallel_size, expert_parallel_size, "
            "expert_tensor_parallel_size, "
            "fsdp.sharding_strategy, fsdp.cpu_offload, pipeline_schedule, virtual_pipeline_size, "
            "comm_optimization.all_to_all_overlap (all of distributed_config), "
            "training_config.micro_batch_size, "
            "training_config.recompute, model_config.moe_layer_config.capacity_factor, "
            "rebalancing.kind",
            key, ""));
}

PlanSpace memory_space(PlanSpace space) {
  const auto least = [](auto& values, const auto& value) {
    if (std::find(values.begin(), values.end(), value) != values.end()) values = {value};
  };
  least(space.sharding, std::string("FULL_SHARD"));
  least(space.recompute, std::string("full"));
  least(space.schedule, std::string("1f1b"));
  least(space.micro_batch, *std::min_element(space.micro_batch.begin(), space.micro_batch.end()));
  const auto overlap = std::find(space.overlap.begin(), space.overlap.end(), false);
  if (overlap != space.overlap.end()) space.overlap = {false};
  const auto offload = std::find(space.cpu_offload.begin(), space.cpu_offload.end(), true);
  if (offload != space.cpu_offload.end()) space.cpu_offload = {true};
  return space;
}

std::vector<PlanLayout> plan_layouts(const PlanSpace& space, const Scenario& scenario) {
  const int64_t world = scenario.distributed_config.world_size;
  std::vector<PlanLayout> layouts;
  for (const int64_t pp : space.pp)
    for (const int64_t tp : space.tp)
      for (const int64_t ep : space.ep)
        for (const int64_t given : space.etp) {
          const int64_t etp = given == 0 ? tp : given;
          if (world % (tp * pp) != 0 || world % (ep * etp * pp) != 0) continue;
          const PlanLayout layout{tp, pp, ep, etp, world / (ep * etp * pp)};
          if (std::find(layouts.begin(), layouts.end(), layout) == layouts.end())
            layouts.push_back(layout);
        }
  return layouts;
}

namespace {
int64_t redundant_experts(const Scenario& scenario, const PlanPoint& point) {
  if (point.rebalancing != "replication") return 0;
  const int64_t on_rank =
      scenario.rebalancing.redundant_experts / scenario.distributed_config.expert_parallel_size;
  return std::max<int64_t>(1, on_rank) * point.layout.ep;
}
}  // namespace

Scenario planned(const Scenario& scenario, const PlanPoint& point) {
  Scenario s = scenario;
  DistributedConfig& d = s.distributed_config;
  const PlanLayout& l = point.layout;
  d.tensor_parallel_size = l.tp;
  d.pipeline_parallel_size = l.pp;
  d.expert_parallel_size = l.ep;
  d.expert_tensor_parallel_size = l.etp;
  d.data_parallel_size = l.edp;
  d.parallel_folding = l.etp != l.tp;
  d.dense_data_parallel_size = 0;
  // Norms and residuals in slices cost nothing and save memory; of one rank there are none.
  d.sequence_parallel = l.tp > 1;
  const auto [zero_stage, strategy] = sharding_words(point.sharding);
  d.zero_stage = zero_stage;
  d.fsdp.sharding_strategy = strategy;
  d.fsdp.cpu_offload = point.cpu_offload;
  d.pipeline_schedule = point.schedule;
  d.virtual_pipeline_size = point.virtual_stages;
  d.layers_per_stage.clear();
  d.num_layers_in_first_pipeline_stage = d.num_layers_in_last_pipeline_stage = 0;
  d.comm_optimization.all_to_all_overlap = point.overlap;
  s.training_config.micro_batch_size = point.micro_batch;
  s.training_config.recompute = point.recompute;
  s.training_config.numerics = "none";
  s.model_config.moe_layer_config.capacity_factor = point.capacity_factor;
  s.rebalancing.kind = point.rebalancing;
  s.rebalancing.redundant_experts = redundant_experts(scenario, point);
  return s;
}

std::vector<std::string> plan_overrides(const Scenario& scenario, const PlanPoint& point) {
  const bool experts = scenario.model_config.moe_layer_config.num_experts > 0;
  const PlanLayout& l = point.layout;
  std::vector<std::string> overrides;
  const auto set = [&](const std::string& key, const std::string& value) {
    overrides.push_back(key + "=" + value);
  };
  const auto number = [](int64_t value) { return std::to_string(value); };
  const auto flag = [](bool value) { return std::string(value ? "true" : "false"); };
  set(kDistributed + "data_parallel_size", number(l.edp));
  set(kDistributed + "expert_parallel_size", number(l.ep));
  set(kDistributed + "tensor_parallel_size", number(l.tp));
  set(kDistributed + "pipeline_parallel_size", number(l.pp));
  set(kDistributed + "expert_tensor_parallel_size", number(l.etp));
  set(kDistributed + "parallel_folding", flag(l.etp != l.tp));
  set(kDistributed + "sequence_parallel", flag(l.tp > 1));
  set(kDistributed + "pipeline_schedule", point.schedule);
  set(kDistributed + "virtual_pipeline_size", number(point.virtual_stages));
  const auto [zero_stage, strategy] = sharding_words(point.sharding);
  set(kDistributed + "zero_stage", number(zero_stage));
  set(kDistributed + "fsdp.sharding_strategy", strategy);
  set(kDistributed + "fsdp.cpu_offload", flag(point.cpu_offload));
  set(kDistributed + "comm_optimization.all_to_all_overlap", flag(point.overlap));
  set(kTraining + "micro_batch_size", number(point.micro_batch));
  set(kTraining + "recompute", point.recompute);
  if (experts)
    set("model_config.moe_layer_config.capacity_factor",
        point.capacity_factor ? fmt::format("{}", *point.capacity_factor) : "null");
  if (point.rebalancing != scenario.rebalancing.kind || point.rebalancing != "none")
    set("rebalancing.kind", point.rebalancing);
  if (point.rebalancing == "replication")
    set("rebalancing.redundant_experts", number(redundant_experts(scenario, point)));
  return overrides;
}

}  // namespace moetwin
