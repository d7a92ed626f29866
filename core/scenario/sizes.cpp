#include "core/scenario/sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

namespace moetwin {
namespace {

const std::string kSection = "distributed_config.";

// Products of sizes from a file may exceed 64 bits; the largest value then stands for "too large".
int64_t product(std::initializer_list<int64_t> factors) {
  int64_t result = 1;
  for (int64_t factor : factors)
    if (__builtin_mul_overflow(result, factor, &result)) return std::numeric_limits<int64_t>::max();
  return result;
}

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> low, high;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    low.push_back(d);
    if (d != n / d) high.push_back(n / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

std::vector<int64_t> divisors_of_quotient(int64_t world, int64_t others) {
  return world % others == 0 ? divisors(world / others) : std::vector<int64_t>{};
}

std::string legal(const char* key, const std::vector<int64_t>& values) {
  if (values.empty()) return "";
  return fmt::format("; legal {}: {}", key, fmt::join(values, ", "));
}

int64_t expert_tp(const DistributedConfig& c) {
  return c.expert_tensor_parallel_size ? c.expert_tensor_parallel_size : c.tensor_parallel_size;
}

// Why `ep` cannot shard these experts (seed 004's two-dimensional sharding), or an empty string.
std::string expert_fault(int64_t ep, int64_t num_experts, int64_t expert_width) {
  if (num_experts <= 0) return "";
  if (ep <= num_experts)
    return num_experts % ep == 0
               ? ""
               : fmt::format(
                     "num_experts {} over expert_parallel_size {} leaves {} mod {} = {}: every EP "
                     "rank must hold equally many",
                     num_experts, ep, num_experts, ep, num_experts % ep);
  if (ep % num_experts != 0)
    return fmt::format(
        "expert_parallel_size {} exceeds num_experts {} and {} mod {} = {}: every expert must be "
        "split over equally many ranks",
        ep, num_experts, ep, num_experts, ep % num_experts);
  const int64_t hidden_sharding = ep / num_experts;
  if (expert_width % hidden_sharding != 0)
    return fmt::format(
        "expert_parallel_size {} over num_experts {} is hidden sharding {}, which does not divide "
        "the expert width {} (rest {})",
        ep, num_experts, hidden_sharding, expert_width, expert_width % hidden_sharding);
  return "";
}

std::vector<SizeProblem> value_problems(const DistributedConfig& c) {
  std::vector<SizeProblem> problems;
  const auto at_least = [&](const char* key, int64_t value, int64_t least) {
    if (value < least)
      problems.push_back(
          {kSection + key, fmt::format("{} is {}, must be at least {}", key, value, least)});
  };
  at_least("world_size", c.world_size, 1);
  at_least("data_parallel_size", c.data_parallel_size, 1);
  at_least("expert_parallel_size", c.expert_parallel_size, 1);
  at_least("tensor_parallel_size", c.tensor_parallel_size, 1);
  at_least("pipeline_parallel_size", c.pipeline_parallel_size, 1);
  at_least("context_parallel_size", c.context_parallel_size, 1);
  at_least("expert_tensor_parallel_size", c.expert_tensor_parallel_size, 0);
  at_least("dense_data_parallel_size", c.dense_data_parallel_size, 0);
  return problems;
}

// The expert grid W = EDP x EP x ETP x PP.
void check_expert_grid(const DistributedConfig& c, int64_t num_experts, int64_t expert_width,
                       std::vector<SizeProblem>* problems) {
  const int64_t world = c.world_size, ep = c.expert_parallel_size, pp = c.pipeline_parallel_size;
  const int64_t etp = expert_tp(c), used = product({etp, ep, pp});
  if (world % used == 0) return;
  const std::string relation =
      used > world ? fmt::format("> W {}", world) : fmt::format("does not divide W {}", world);
  problems->push_back(
      {kSection + "expert_parallel_size",
       fmt::format(
           "expert grid: ETP {} x EP {} x PP {} = {} {}{}{}{}", etp, ep, pp, used, relation,
           legal("expert_parallel_size", legal_expert_parallel_sizes(c, num_experts, expert_width)),
           legal("pipeline_parallel_size", divisors_of_quotient(world, product({etp, ep}))),
           etp == 1 ? ""
                    : legal("expert_tensor_parallel_size",
                            divisors_of_quotient(world, product({ep, pp}))))});
}

// The dense grid W = DDP x CP x TP x PP.
void check_dense_grid(const DistributedConfig& c, std::vector<SizeProblem>* problems) {
  const int64_t world = c.world_size, tp = c.tensor_parallel_size, pp = c.pipeline_parallel_size;
  const int64_t used = product({tp, pp});
  if (world % used == 0) return;
  const std::string relation =
      used > world ? fmt::format("> W {}", world) : fmt::format("does not divide W {}", world);
  problems->push_back(
      {kSection + "tensor_parallel_size",
       fmt::format("dense grid: TP {} x PP {} = {} {}{}{}", tp, pp, used, relation,
                   legal("tensor_parallel_size", divisors_of_quotient(world, pp)),
                   legal("pipeline_parallel_size", divisors_of_quotient(world, tp)))});
}

/// As a factor of the dense grid, where there is one.
std::string context_factor(int64_t cp) { return cp > 1 ? fmt::format("CP {} x ", cp) : ""; }

// Ranks with parts of the same sequences are a part of dense data parallelism.
void check_context(const DistributedConfig& c, std::vector<SizeProblem>* problems) {
  const int64_t ddp = c.world_size / product({c.tensor_parallel_size, c.pipeline_parallel_size});
  if (ddp % c.context_parallel_size == 0) return;
  problems->push_back(
      {kSection + "context_parallel_size",
       fmt::format("dense grid: CP {} does not divide W {} / (TP {} x PP {}) = {}{}",
                   c.context_parallel_size, c.world_size, c.tensor_parallel_size,
                   c.pipeline_parallel_size, ddp,
                   legal("context_parallel_size", divisors_of_quotient(ddp, 1)))});
}

// Seed 001's product, which fixes the number of copies of each expert.
void check_unfolded(const DistributedConfig& c, std::vector<SizeProblem>* problems) {
  const int64_t world = c.world_size, dp = c.data_parallel_size, ep = c.expert_parallel_size;
  const int64_t tp = c.tensor_parallel_size, pp = c.pipeline_parallel_size;
  const int64_t used = product({dp, ep, tp, pp});
  if (used != world) {
    std::string repair = fmt::format("; legal: world_size {}", used);
    if (world % product({ep, tp, pp}) == 0)
      repair += fmt::format(", or data_parallel_size {}", world / product({ep, tp, pp}));
    if (world % product({dp, tp, pp}) == 0)
      repair += fmt::format(", or expert_parallel_size {}", world / product({dp, tp, pp}));
    problems->push_back(
        {kSection + "world_size",
         fmt::format("data_parallel_size {} x expert_parallel_size {} x tensor_parallel_size {} x "
                     "pipeline_parallel_size {} = {}, but world_size is {}{}",
                     dp, ep, tp, pp, used, world, repair)});
    return;
  }
  const int64_t cp = c.context_parallel_size, ddp = world / product({tp, cp, pp});
  if (c.dense_data_parallel_size != 0 && c.dense_data_parallel_size != ddp)
    problems->push_back(
        {kSection + "dense_data_parallel_size",
         fmt::format("dense_data_parallel_size {} without parallel_folding: it follows from W {} / "
                     "(TP {} x {}PP {}); legal: leave it out, or {}, or parallel_folding true",
                     c.dense_data_parallel_size, world, tp, context_factor(cp), pp, ddp)});
}

void check_folded(const DistributedConfig& c, std::vector<SizeProblem>* problems) {
  const int64_t world = c.world_size, tp = c.tensor_parallel_size, pp = c.pipeline_parallel_size;
  const int64_t ep = c.expert_parallel_size, etp = expert_tp(c);
  const int64_t cp = c.context_parallel_size, ddp = world / product({tp, cp, pp});
  const int64_t edp = world / product({etp, ep, pp});
  if (c.dense_data_parallel_size != 0 && c.dense_data_parallel_size != ddp)
    problems->push_back(
        {kSection + "dense_data_parallel_size",
         fmt::format("dense grid: DDP {} x {}TP {} x PP {} = {}, but W is {}; "
                     "legal dense_data_parallel_size: {}",
                     c.dense_data_parallel_size, context_factor(cp), tp, pp,
                     product({c.dense_data_parallel_size, cp, tp, pp}), world, ddp)});
  if (c.data_parallel_size != 1 && c.data_parallel_size != edp)
    problems->push_back(
        {kSection + "data_parallel_size",
         fmt::format("data_parallel_size {} with parallel_folding: copies of each expert follow "
                     "from W {} / (EP {} x ETP {} x PP {}); legal: leave it out, or {}",
                     c.data_parallel_size, world, ep, etp, pp, edp)});
}

}  // namespace

std::vector<int64_t> legal_expert_parallel_sizes(const DistributedConfig& config,
                                                 int64_t num_experts, int64_t expert_width) {
  std::vector<int64_t> sizes = divisors_of_quotient(
      config.world_size, product({expert_tp(config), config.pipeline_parallel_size}));
  std::erase_if(sizes,
                [&](int64_t ep) { return !expert_fault(ep, num_experts, expert_width).empty(); });
  return sizes;
}

std::vector<SizeProblem> size_problems(const DistributedConfig& config, int64_t num_experts,
                                       int64_t expert_width) {
  std::vector<SizeProblem> problems = value_problems(config);
  if (!problems.empty()) return problems;
  check_expert_grid(config, num_experts, expert_width, &problems);
  check_dense_grid(config, &problems);
  if (problems.empty()) {
    check_context(config, &problems);
    if (!problems.empty()) return problems;
    if (config.parallel_folding)
      check_folded(config, &problems);
    else
      check_unfolded(config, &problems);
  }
  if (const std::string fault =
          expert_fault(config.expert_parallel_size, num_experts, expert_width);
      !fault.empty())
    problems.push_back(
        {kSection + "expert_parallel_size",
         fault + legal("expert_parallel_size",
                       legal_expert_parallel_sizes(config, num_experts, expert_width))});
  return problems;
}

int64_t local_sequence_length(const Scenario& scenario) {
  return scenario.model_config.sequence_length / scenario.distributed_config.context_parallel_size;
}

ParallelSizes parallel_sizes(const DistributedConfig& config, int64_t num_experts) {
  ParallelSizes s;
  s.world = config.world_size;
  s.tp = config.tensor_parallel_size;
  s.pp = config.pipeline_parallel_size;
  s.ep = config.expert_parallel_size;
  s.etp = expert_tp(config);
  s.ddp = s.world / (s.tp * s.pp);
  s.cp = config.context_parallel_size;
  s.edp = s.world / (s.ep * s.etp * s.pp);
  if (num_experts > 0) {
    s.expert_sharding = std::min(s.ep, num_experts);
    s.hidden_sharding = s.ep / s.expert_sharding;
    s.local_experts = num_experts / s.expert_sharding;
  }
  return s;
}

}  // namespace moetwin
