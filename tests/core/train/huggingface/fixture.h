#pragma once
// The stored models of tests/fixtures/huggingface, as scenarios.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "core/scenario/import_json.h"
#include "core/scenario/read.h"
#include "tests/support/temporary_directory.h"

namespace moetwin::test {

inline std::string model_directory(const std::string& name) {
  return std::string(MOETWIN_FIXTURES) + "/huggingface/" + name;
}

inline ImportedScenario imported_config(const std::string& directory) {
  ScenarioDraft draft;
  import_huggingface(file_bytes(directory + "/config.json"), directory + "/config.json", &draft);
  draft.set("data.format", "synthetic");
  return draft.finish("config.json");
}

/// What config.json says, with other values for some keys.
inline Scenario model_scenario(const std::string& directory,
                               std::vector<std::string> overrides = {}) {
  const ImportedScenario imported = imported_config(directory);
  INFO(directory << ": " << imported.problems);
  REQUIRE(imported.problems.empty());
  REQUIRE(imported.differences.empty());
  for (const char* standard : {"training_config.dtype=fp32", "training_config.optimizer=sgd",
                               "training_config.learning_rate=0", "training_config.weight_decay=0",
                               "training_config.steps=1", "training_config.global_batch_size=4",
                               "cluster.profile=toy-8gpu"})
    overrides.insert(overrides.begin(), standard);
  Scenario s = parse_scenario(imported.text, "model.json", overrides);
  s.training_config.validation_sequences = 0;
  return s;
}

}  // namespace moetwin::test
