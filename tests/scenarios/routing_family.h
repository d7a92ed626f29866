#pragma once
// The family of scenarios about routing (scenarios/README.md) and what each of them must show.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/scenarios/run_scenario.h"

namespace moetwin::test {

struct FamilyMember {
  std::string name;
  /// Verdicts of which one must hold (empty: any), and of which none may: "collapsed",
  /// "oscillating/strong".
  std::vector<std::string> any_of;
  std::vector<std::string> none_of;
  /// Of the oscillating verdict; 0: not asked.
  double shortest_period = 0, longest_period = 0;
  int64_t earliest_onset = 0, latest_onset = 0;
  int64_t least_of_ten = 9;  ///< seeds of 1 to 10 that must show it
};

/// What each member's first lines expect of it.
std::vector<FamilyMember> routing_family();

/// Runs one member with one seed and diagnoses it, as a user would: what is missing or too much;
/// empty when it shows what it must. Throws what the run or the diagnosis reports.
std::string shortcoming(const FamilyMember& member, int64_t seed);

}  // namespace moetwin::test
