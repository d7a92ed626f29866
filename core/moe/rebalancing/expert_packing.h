#pragma once
// Which experts to copy and where copies lie, so that loads are even: the algorithm of DeepSeek's
// EPLB (github.com/deepseek-ai/EPLB). Pure arithmetic; ties go to the lower index.

#include <cstdint>
#include <vector>

namespace moetwin {

/// A place in a pack.
struct Packed {
  int64_t pack = 0, rank = 0;
};
/// By item. Items from heavy to light go to the lightest pack that has room: each takes n / packs,
/// which is whole.
std::vector<Packed> balanced_packing(const std::vector<double>& weights, int64_t packs);

/// Which item a copy is of, and which of its copies it is, from 0 on.
struct Copy {
  int64_t item = 0, rank = 0;
};
struct Copies {
  std::vector<Copy> copies;    ///< the items themselves, then what was added
  std::vector<int64_t> count;  ///< by item, 1 at least
};
/// `total` copies of all items: again and again the one with the largest weight per copy gets one
/// more. No item gets more than `most` (0: no limit); there may then be fewer than `total`.
Copies replicate_heaviest(const std::vector<double>& weights, int64_t total, int64_t most = 0);

struct PackingShape {
  int64_t physical = 0;  ///< experts with their copies, a multiple of gpus
  int64_t groups = 1;    ///< of experts, which keep together on a node
  int64_t nodes = 1, gpus = 1;
};
struct ExpertPacking {
  std::vector<Copy> physical;  ///< in order of GPU: what lies in each place
  std::vector<int64_t> count;  ///< copies by expert
};
/// Hierarchical where the nodes share out the groups evenly: groups to nodes, copies inside nodes,
/// copies to GPUs. Else over all GPUs at once. Throws Error(configuration) where a size does not
/// divide.
ExpertPacking pack_experts(const std::vector<double>& weights, const PackingShape& shape);

}  // namespace moetwin
