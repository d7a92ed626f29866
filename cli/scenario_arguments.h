#pragma once
// The arguments of every verb that takes a scenario.

#include <string>
#include <vector>

#include "core/scenario/scenario.h"

namespace CLI {
class App;
}

namespace moetwin {

struct ScenarioArguments {
  std::string file;
  std::vector<std::string> overrides;  ///< "key=value" of each --set, in order
};

/// FILE (also --config FILE and --deepspeed_config FILE, as in torchrun and DeepSpeed launch
/// lines) and --set key=value.
void add_scenario_arguments(CLI::App& verb, ScenarioArguments& arguments);

/// Reads the scenario; what is allowed but probably not meant is appended to `warnings`.
Scenario read_scenario(const ScenarioArguments& arguments, std::vector<std::string>* warnings);

}  // namespace moetwin
