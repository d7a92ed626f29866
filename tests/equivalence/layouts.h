#pragma once
// Layouts that must train what one rank trains: factors, their valid combinations, and a pairwise
// cover of them.

#include <cstdint>
#include <string>
#include <vector>

#include "core/scenario/scenario.h"

namespace moetwin::test {

/// One choice per factor, as an index into that factor's levels.
struct Layout {
  int64_t dp = 1, ep = 1;
  int64_t experts = 4, top_k = 2;
  std::string capacity = "none";  ///< none | position | probability
  int64_t accumulation = 1, micro_batch = 1;
  int64_t zero = 0;
  std::string optimizer = "adamw";
  bool overlap = false;
  std::string variant = "plain";  ///< which kind of model, see variant_names()
  std::string name() const;
};

/// All valid combinations. `whole_product`: of DP x EP, experts, k, capacity, accumulation,
/// micro-batch, ZeRO and optimizer, overlap and kind of model in turns; otherwise of every factor,
/// to choose a cover from.
std::vector<Layout> all_layouts(bool whole_product);
/// A subset in which every pair of levels of two factors that occurs in a valid layout occurs at
/// least once. Deterministic.
std::vector<Layout> pairwise_cover(const std::vector<Layout>& all);

/// Two layers, fp64, clipping active.
Scenario layout_scenario(const Layout& layout, int64_t steps);
/// The same training on one rank with the same micro-batches.
Scenario reference_scenario(const Layout& layout, int64_t steps);
/// Layouts with equal keys have one reference.
std::string reference_key(const Layout& layout);

}  // namespace moetwin::test
