#pragma once
// Fair sharing of ports: k amounts of bytes under way through one port get a k-th of its bandwidth
// each. Ports do not influence each other, so what is under way now decides when each amount is
// through; only amounts that come later can delay it.

#include <cstdint>
#include <vector>

#include "backends/sim/cluster/faults.h"

namespace moetwin {

class PortSharing {
 public:
  /// Bytes on their way through one port.
  struct Amount {
    double left = 0;      ///< bytes, when the port was last looked at
    double through = -1;  ///< when it was through; negative: it is not
  };

  explicit PortSharing(std::vector<double> bytes_per_second);

  /// The port's rate changes at these times, known from the start.
  void schedule(int64_t port, std::vector<RateChange> changes);
  /// `amount` enters at `now`, which is not before any earlier call's for this port, and must live
  /// until it is through or taken out.
  void enter(int64_t port, double now, Amount& amount);
  /// When `amount` is through, as far as is known at `now`.
  double through(int64_t port, double now, const Amount& amount);
  void take_out(int64_t port, const Amount& amount);

 private:
  struct Port {
    double peak = 0, rate = 0, time = 0;
    std::vector<RateChange> changes;
    size_t next_change = 0;
    std::vector<Amount*> under_way;
  };
  void advance(Port& port, double now);
  std::vector<Port> ports_;
};

}  // namespace moetwin
