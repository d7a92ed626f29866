#include "cli/scenario_arguments.h"

#include <CLI/CLI.hpp>

#include "cli/shipped.h"
#include "core/base/error.h"
#include "core/scenario/read.h"

namespace moetwin {

void add_scenario_arguments(CLI::App& verb, ScenarioArguments& arguments) {
  verb.add_option("FILE,--config,--deepspeed_config", arguments.file,
                  "Scenario file, or the name of a shipped one")
      ->type_name("FILE");
  verb.add_option("--set", arguments.overrides,
                  "Another value for one key, e.g. training_config.steps=10; may be repeated")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all();
}

Scenario read_scenario(const ScenarioArguments& arguments, std::vector<std::string>* warnings) {
  if (arguments.file.empty())
    throw Error(ErrorClass::configuration,
                "no scenario file given: name one, e.g. scenarios/quickstart.json");
  return read_scenario(find_scenario(arguments.file), arguments.overrides, warnings);
}

}  // namespace moetwin
