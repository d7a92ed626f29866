#pragma once
// Rules between keys. Each names the keys it is about: it is skipped where one of them is already
// wrong, and told at the first of them that the file states.

#include <functional>
#include <string>
#include <vector>

#include "core/scenario/problems.h"
#include "core/scenario/scenario.h"

namespace moetwin {

struct Rule {
  std::vector<std::string> keys;  ///< full paths; a section stands for all of its keys
  std::string statement;          ///< one line for the docs
  bool warning = false;           ///< allowed, but probably not meant
  /// What is wrong, with every value and the legal ones; empty where the rule holds.
  std::function<std::string(const Scenario&, const Problems&)> fault;
};

/// All rules but those of the process grid (core/scenario/sizes.h).
std::vector<Rule> scenario_rules();

/// Defaults that follow from other keys: training_config.global_batch_size.
void fill_derived_defaults(Scenario* scenario, const Problems& problems);

/// Reports every rule and every grid size that does not hold.
void check_rules(const Scenario& scenario, Problems* problems);

/// Refuses what only the modelled GPU can do when `backend` is "cuda" (fp64).
void check_backend(const Scenario& scenario, const std::string& backend);

}  // namespace moetwin
