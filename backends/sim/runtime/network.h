#pragma once
// How a collective's bytes pass the machine's ports. Both networks live in SimGrid's time.

#include <memory>

#include "backends/sim/runtime/actors.h"

namespace simgrid::s4u {
class Host;
class NetZone;
}  // namespace simgrid::s4u

namespace moetwin {

class Network {
 public:
  virtual ~Network() = default;
  /// Called on a helper at the transfer's start; returns at its end, which it tells.
  virtual double pass(const Transfer& transfer) = 0;
};

/// Latency, then the bytes of every port, shared fairly with all that uses the port at the time.
std::unique_ptr<Network> make_fluid_network(const Machine& machine);
/// Every step's transfers as flows over the links of their route.
std::unique_ptr<Network> make_flow_network(const Machine& machine, const NcclChoice& choice,
                                           simgrid::s4u::NetZone* zone,
                                           simgrid::s4u::Host* control);

}  // namespace moetwin
