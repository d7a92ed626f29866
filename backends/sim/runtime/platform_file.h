#pragma once
// Platform files of SimGrid (XML), as what lies between the nodes.

#include <cstdint>
#include <memory>
#include <string>

#include "backends/sim/cluster/fabric.h"

namespace moetwin {

/// Hosts of the file in natural order (host2 before host10) stand for the nodes, or for the NICs
/// where there are as many. Links that every flow has for itself (FATPIPE) and latencies are left
/// out. Read in a child process, since a process can have one platform. Throws Error(configuration)
/// naming `file` when SimGrid cannot read it or there are fewer hosts than `nodes`.
std::shared_ptr<const PlatformTable> read_platform_file(const std::string& file, int64_t nodes);

}  // namespace moetwin
