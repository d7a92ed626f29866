#pragma once
// `routing.source: "proxy"`: a smaller scenario is trained, and what its router did drives the
// large one.

#include <string>

#include "cli/program.h"
#include "core/scenario/scenario.h"

namespace moetwin {

/// Where routing.scenario of a scenario that is routed by a proxy names a scenario file: trains it
/// on the modelled cluster in a process of its own, unless runs/proxy-NAME-HASH already holds that
/// run (HASH: of what the file says), and names its record instead. Any other scenario stays as it
/// is. Throws the error that ended the training.
void train_proxy(Scenario& scenario, const Output& output, bool quiet);

}  // namespace moetwin
