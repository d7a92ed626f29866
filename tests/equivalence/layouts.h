#pragma once
// Layouts that must train what one rank trains: factors, their valid combinations, and a pairwise
// cover of them.

#include <cstdint>
#include <string>
#include <vector>

#include "core/scenario/scenario.h"

namespace moetwin::test {

/// One choice per factor.
struct Layout {
  /// Unfolded: W = DP x EP x TP, and EDP follows where ETP is 1. Folded: W = DP x TP, DP being that
  /// of the dense weights, and EP takes its ranks from both.
  int64_t dp = 1, ep = 1, tp = 1;
  int64_t etp = 1;
  bool folded = false, sequence_parallel = false;
  int64_t experts = 4, top_k = 2;
  std::string capacity = "none";  ///< none | position | probability
  int64_t accumulation = 1, micro_batch = 1;
  int64_t zero = 0;
  std::string optimizer = "adamw";
  bool overlap = false;
  bool pairs = false;             ///< micro-batches overlap, where the schedule can
  std::string variant = "plain";  ///< which kind of model, see variant_names()
  std::string pipeline = "none";  ///< stages, schedule and virtual stages, by name
  std::string name() const;
  int64_t world() const { return folded ? dp * tp : dp * ep * tp; }
  /// Copies of the dense weights.
  int64_t ddp() const { return world() / tp; }
  /// Whether forwards and backwards are paired.
  bool paired() const;
};

/// All valid combinations of grids, experts, k and capacity; of accumulation, micro-batch, ZeRO and
/// optimizer too where TP and ETP are 1; what is left takes turns.
std::vector<Layout> whole_product();
/// Layouts in which every pair of levels of two factors that occurs in a valid layout occurs at
/// least once, and every grid of up to eight ranks. Deterministic.
std::vector<Layout> pairwise_cover();

/// Two layers, or four with more than two stages; fp64, clipping active.
Scenario layout_scenario(const Layout& layout, int64_t steps);
/// The same training on one rank with the same micro-batches.
Scenario reference_scenario(const Layout& layout, int64_t steps);
/// Layouts with equal keys have one reference.
std::string reference_key(const Layout& layout);

}  // namespace moetwin::test
