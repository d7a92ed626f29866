#pragma once
// A scenario from the literal dictionaries of a Python file (seed 001's listing): every key and
// value is kept, those without a counterpart as comments.

#include <string>

#include "core/scenario/draft.h"

namespace moetwin {

/// Dictionaries named as sections of a scenario (model_config, distributed_config, ...) are taken
/// over, as are those within one dictionary of such sections. Throws Error(configuration) when the
/// file has none.
void import_python(const std::string& text, const std::string& name, ScenarioDraft* draft);
/// The same as a whole scenario.
ImportedScenario import_python(const std::string& text, const std::string& name);

}  // namespace moetwin
