#pragma once
// Layouts whose experts work elsewhere too, small enough that every policy moves something.

#include <string>
#include <vector>

#include "tests/equivalence/layouts.h"

namespace moetwin::test {

struct RebalancedLayout {
  std::string name;
  Layout layout;
  RebalancingConfig rebalancing;
  std::string recompute = "none";
  Scenario scenario(int64_t steps) const;
};
const std::vector<RebalancedLayout>& rebalanced_layouts();

}  // namespace moetwin::test
