#pragma once
// The modelled cluster as a SimGrid platform (XML, DTD 4.1): a host for every GPU, links for every
// port, and between two GPUs the links that bytes pass, with the latency of one step. What a
// protocol takes of a link, and the start of a collective, is no platform's: it is in none of this.

#include <string>

#include "backends/sim/cluster/machine.h"

namespace moetwin {

/// Hosts gpu-0, gpu-1, ... Where the fabric holds nothing up, a zone for each node; else one zone
/// with a route for every pair: throws Error(configuration) beyond 512 nodes or GPUs. `speed` of a
/// host: a peak of the GPU.
std::string platform_xml(const Machine& machine, FlopPerSecond speed);

}  // namespace moetwin
