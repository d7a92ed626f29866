#include "core/moe/rebalancing/expert_packing.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/moe/rebalancing/index.h"

namespace moetwin {

std::vector<Packed> balanced_packing(const std::vector<double>& weights, int64_t packs) {
  const auto n = static_cast<int64_t>(weights.size());
  require(packs >= 1 && n % packs == 0, "packs take equally many items");
  const int64_t room = n / packs;
  std::vector<Packed> packed(weights.size());
  if (room == 1) {
    for (int64_t i = 0; i < n; ++i) packed[at(i)].pack = i;
    return packed;
  }
  std::vector<int64_t> order(weights.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return weights[at(a)] > weights[at(b)]; });
  std::vector<double> weight(at(packs), 0);
  std::vector<int64_t> items(at(packs), 0);
  for (const int64_t i : order) {
    int64_t best = -1;
    for (int64_t p = 0; p < packs; ++p)
      if (items[at(p)] < room && (best < 0 || weight[at(p)] < weight[at(best)])) best = p;
    packed[at(i)] = {best, items[at(best)]++};
    weight[at(best)] += weights[at(i)];
  }
  return packed;
}

Copies replicate_heaviest(const std::vector<double>& weights, int64_t total, int64_t most) {
  const auto n = static_cast<int64_t>(weights.size());
  Copies all;
  all.count.assign(weights.size(), 1);
  for (int64_t i = 0; i < n; ++i) all.copies.push_back({i, 0});
  for (int64_t c = n; c < total; ++c) {
    int64_t best = -1;
    const auto per_copy = [&](int64_t i) {
      return weights[at(i)] / static_cast<double>(all.count[at(i)]);
    };
    for (int64_t i = 0; i < n; ++i)
      if ((most == 0 || all.count[at(i)] < most) && (best < 0 || per_copy(i) > per_copy(best)))
        best = i;
    if (best < 0) break;
    all.copies.push_back({best, all.count[at(best)]++});
  }
  return all;
}

ExpertPacking pack_experts(const std::vector<double>& weights, const PackingShape& asked) {
  const auto experts = static_cast<int64_t>(weights.size());
  PackingShape shape = asked;
  if (shape.groups % shape.nodes != 0) shape.groups = shape.nodes = 1;
  if (experts % shape.groups != 0 || shape.gpus % shape.nodes != 0 ||
      shape.physical % shape.gpus != 0 || shape.physical < experts)
    throw Error(ErrorClass::configuration,
                fmt::format("{} experts in {} groups as {} copies on {} GPUs of {} nodes: groups "
                            "divide experts, nodes divide GPUs, GPUs divide copies, and there are "
                            "at least as many copies as experts",
                            experts, shape.groups, shape.physical, shape.gpus, shape.nodes));
  const int64_t group_size = experts / shape.groups, on_node = experts / shape.nodes;
  std::vector<double> of_group(at(shape.groups), 0);
  for (int64_t e = 0; e < experts; ++e) of_group[at(e / group_size)] += weights[at(e)];
  const std::vector<Packed> group_at = balanced_packing(of_group, shape.nodes);
  // Experts in order of node and of group on it.
  std::vector<int64_t> by_node(at(experts));
  for (int64_t e = 0; e < experts; ++e) {
    const Packed& g = group_at[at(e / group_size)];
    by_node[at((g.pack * (shape.groups / shape.nodes) + g.rank) * group_size + e % group_size)] = e;
  }
  ExpertPacking packing;
  packing.physical.resize(at(shape.physical));
  packing.count.assign(at(experts), 0);
  const int64_t node_copies = shape.physical / shape.nodes, node_gpus = shape.gpus / shape.nodes;
  const int64_t on_gpu = shape.physical / shape.gpus;
  for (int64_t node = 0; node < shape.nodes; ++node) {
    const int64_t* here = by_node.data() + node * on_node;
    std::vector<double> own;
    for (int64_t i = 0; i < on_node; ++i) own.push_back(weights[at(here[i])]);
    const Copies copies = replicate_heaviest(own, node_copies);
    std::vector<double> share;
    for (const Copy& c : copies.copies)
      share.push_back(own[at(c.item)] / static_cast<double>(copies.count[at(c.item)]));
    const std::vector<Packed> gpu_of = balanced_packing(share, node_gpus);
    for (size_t c = 0; c < copies.copies.size(); ++c) {
      const Copy& copy = copies.copies[c];
      const int64_t place = (node * node_gpus + gpu_of[c].pack) * on_gpu + gpu_of[c].rank;
      packing.physical[at(place)] = {here[copy.item], copy.rank};
    }
    for (int64_t i = 0; i < on_node; ++i) packing.count[at(here[i])] = copies.count[at(i)];
  }
  return packing;
}

}  // namespace moetwin
