#pragma once
// A scenario from the literal dictionaries of a Python file (seed 001's listing): every key and
// value is kept, those without a counterpart as comments.

#include <string>
#include <vector>

namespace moetwin {

struct ImportedScenario {
  std::string text;                   ///< a scenario file, what was left out as comments on top
  size_t kept = 0;                    ///< keys taken over
  std::vector<std::string> left_out;  ///< "file:line: path = value (reason)"
  std::string problems;               ///< what reading `text` as a scenario refuses; empty: valid
};

/// Dictionaries named as sections of a scenario (model_config, distributed_config, ...) are taken
/// over, as are those within one dictionary of such sections. Throws Error(configuration) when the
/// file has none.
ImportedScenario import_python(const std::string& text, const std::string& name);

}  // namespace moetwin
