#pragma once
// A scenario from the arguments of a Megatron-LM training: Megatron-Core's --moe-* and those of
// MegaBlocks' fork (seed 004's from_megatron), out of a launch script or a list of arguments.

#include <string>

#include "core/scenario/draft.h"

namespace moetwin {

/// Throws Error(configuration) when the text has no command with Megatron's arguments.
void import_megatron(const std::string& text, const std::string& name, ScenarioDraft* draft);

}  // namespace moetwin
