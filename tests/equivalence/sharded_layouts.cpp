#include "tests/equivalence/sharded_layouts.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "core/base/error.h"
#include "core/parallel/shard_groups.h"
#include "core/topology/grid.h"

namespace moetwin::test {

namespace {

const std::vector<std::string> kStrategies{"", "SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD"};
const std::vector<std::string> kRecompute{"none", "selective", "full"};

using Pairs = std::set<std::pair<std::string, std::string>>;

/// Levels of the layout, which are the words of its name, with the two of sharding and recompute.
std::vector<std::pair<std::string, std::string>> pairs(const ShardedLayout& l) {
  std::vector<std::pair<std::string, std::string>> out{
      {"sharding " + l.sharding, "recompute " + l.recompute}};
  std::istringstream words(l.layout.name());
  for (std::string word; words >> word;) {
    out.emplace_back(word, "sharding " + l.sharding);
    out.emplace_back(word, "recompute " + l.recompute);
  }
  return out;
}

/// The choice for a layout that closes most open pairs; how many.
size_t choose(ShardedLayout& l, const Pairs& open) {
  ShardedLayout best;
  size_t most = 0;
  for (const std::string& strategy : kStrategies)
    for (const std::string& recompute : kRecompute) {
      l.sharding = strategy;
      l.recompute = recompute;
      size_t closed = 0;
      for (const auto& pair : pairs(l)) closed += open.count(pair);
      if (closed > most || best.recompute.empty()) best = l, most = closed;
    }
  l = best;
  return most;
}

bool even(const Grid& grid, int64_t gpus_per_node) {
  try {
    for (int64_t rank = 0; rank < grid.world(); ++rank)
      for (const GroupKind kind : {GroupKind::dense_dp, GroupKind::expert_dp, GroupKind::world})
        shard_groups(grid.group(kind, rank), rank, gpus_per_node);
  } catch (const Error&) {
    return false;
  }
  return true;
}

}  // namespace

std::string ShardedLayout::name() const {
  return layout.name() + " " + (sharding.empty() ? "as-is" : sharding) + " recompute=" + recompute;
}

Scenario ShardedLayout::scenario(int64_t steps) const {
  Scenario s = layout_scenario(layout, steps);
  s.training_config.recompute = recompute;
  if (sharding.empty()) return s;
  s.distributed_config.zero_stage = 0;
  s.distributed_config.fsdp.sharding_strategy = sharding;
  return s;
}

int64_t ShardedLayout::gpus_per_node() const {
  if (sharding != "HYBRID_SHARD") return 8;
  const Scenario s = layout_scenario(layout, 1);
  const Grid grid(s.distributed_config, s.model_config.moe_layer_config.num_experts,
                  s.model_config.expert_width());
  int64_t gpus = 4;
  while (!even(grid, gpus)) --gpus;
  return gpus;
}

std::vector<ShardedLayout> shard_cover(const std::vector<Layout>& cover) {
  Pairs open;
  for (const Layout& layout : cover)
    for (const std::string& strategy : kStrategies)
      for (const std::string& recompute : kRecompute)
        for (const auto& pair : pairs({layout, strategy, recompute})) open.insert(pair);
  std::vector<ShardedLayout> out;
  // The first round takes every layout; later ones those that close something.
  for (bool first = true; first || !open.empty(); first = false)
    for (const Layout& layout : cover) {
      ShardedLayout l{layout, "", ""};
      if (choose(l, open) == 0 && !first) continue;
      for (const auto& pair : pairs(l)) open.erase(pair);
      out.push_back(l);
    }
  return out;
}

std::vector<ShardedLayout> cross_section(const std::vector<ShardedLayout>& cover, size_t count) {
  Pairs open;
  for (const ShardedLayout& layout : cover)
    for (const auto& pair : pairs(layout)) open.insert(pair);
  std::set<size_t> chosen;
  while (chosen.size() < std::min(count, cover.size())) {
    size_t best = cover.size(), most = 0;
    for (size_t i = 0; i < cover.size(); ++i) {
      if (chosen.count(i)) continue;
      size_t closed = 0;
      for (const auto& pair : pairs(cover[i])) closed += open.count(pair);
      if (best == cover.size() || closed > most) best = i, most = closed;
    }
    chosen.insert(best);
    for (const auto& pair : pairs(cover[best])) open.erase(pair);
  }
  std::vector<ShardedLayout> out;
  for (const size_t i : chosen) out.push_back(cover[i]);
  return out;
}

std::set<std::string> levels_met(const std::vector<ShardedLayout>& layouts) {
  std::set<std::string> met;
  for (const ShardedLayout& layout : layouts)
    for (const auto& [level, other] : pairs(layout)) {
      met.insert(level);
      met.insert(other);
    }
  return met;
}

std::vector<ShardedLayout> shard_in_turns(const std::vector<Layout>& layouts) {
  std::vector<ShardedLayout> out;
  for (const Layout& layout : layouts) {
    // 5 has no factor in common with the 12 choices, nor do they fall in step with other turns.
    const size_t turn = out.size() * 5 % (kStrategies.size() * kRecompute.size());
    out.push_back(
        {layout, kStrategies[turn % kStrategies.size()], kRecompute[turn / kStrategies.size()]});
  }
  return out;
}

}  // namespace moetwin::test
