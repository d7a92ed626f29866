#pragma once
// Random scenarios for holding the representative estimate to the fluid network.

#include <cstdint>
#include <string>

#include "core/scenario/scenario.h"

namespace moetwin::test {

/// Up to `most_ranks` ranks of a DGX A100 cluster: any of the parallel axes, schedules, sharding,
/// recompute, two to eight layers of a small model; routing `source`. The same seed, the same
/// scenario.
Scenario random_scenario(uint64_t seed, int64_t most_ranks, const std::string& source);
/// What it is, in a line.
std::string describe(const Scenario& scenario);

/// Duration of the second step and highest peak of a rank on the fluid network, in a child.
struct Simulated {
  double seconds = 0;
  int64_t peak_bytes = 0;
};
Simulated simulate(const Scenario& scenario);

}  // namespace moetwin::test
