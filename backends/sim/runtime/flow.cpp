#include "backends/sim/runtime/network.h"
#include "core/base/error.h"

namespace moetwin {

std::unique_ptr<Network> make_flow_network(const Machine&, simgrid::s4u::NetZone*) {
  throw Error(ErrorClass::configuration, "cluster.fidelity \"flow\": not in this version yet");
}

}  // namespace moetwin
