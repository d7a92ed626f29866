#pragma once
// Reading scenarios. Every unknown key, wrong type, value out of range and broken cross-key rule is
// refused, all of them at once, with place, key, value, rule and legal values.

#include <json/value.h>

#include <string>
#include <vector>

#include "core/scenario/scenario.h"

namespace moetwin {

/// Reads a scenario file, the files it `extends` and `overrides` ("training_config.steps=10").
/// `warnings`, where given, receives what is allowed but probably not meant.
/// Throws Error(configuration).
Scenario read_scenario(const std::string& path, const std::vector<std::string>& overrides = {},
                       std::vector<std::string>* warnings = nullptr);

/// The same for text; `name` is what messages call it, `directory` where its files are.
Scenario parse_scenario(const std::string& text, const std::string& name,
                        const std::vector<std::string>& overrides = {},
                        std::vector<std::string>* warnings = nullptr,
                        const std::string& directory = "");

/// Every key with its value, so that parse_scenario of it gives the same scenario. `path` is left
/// out: results do not depend on where a file lies.
Json::Value scenario_to_json(const Scenario& scenario);

/// A file named by the scenario, e.g. of data.files: relative ones start at its directory.
std::string scenario_file(const Scenario& scenario, const std::string& file);

}  // namespace moetwin
