#pragma once
// Where the files that come with the program are: scenarios, machine profiles.

#include <string>
#include <vector>

#include "core/scenario/scenario.h"

namespace moetwin {

/// Directories with shipped scenarios that are there: of the source tree of a build, of
/// share/moetwin of an installation.
std::vector<std::string> shipped_scenario_directories();

/// Where machine profiles and other shipped files of `kind` ("clusters") may lie: beside the
/// scenario, then below the shipped scenarios.
std::vector<std::string> shipped_directories(const Scenario& scenario, const std::string& kind);

/// `file` where it is there or absolute. Else the shipped scenario of that name, found with or
/// without a leading "scenarios/" and with or without ".json". Throws Error(configuration) with the
/// names there are when there is neither.
std::string find_scenario(const std::string& file);

}  // namespace moetwin
