#pragma once
// Network interfaces of this node, and which of them NCCL_SOCKET_IFNAME means.

#include <string>
#include <vector>

namespace moetwin {

struct NetworkInterface {
  std::string name;
  bool up = false, loopback = false;
  std::string address;  ///< the first one, in numbers; empty: none
};

std::vector<NetworkInterface> network_interfaces();

/// Interfaces that a value of NCCL_SOCKET_IFNAME selects: a list of prefixes, "=" before it for
/// whole names, "^" to leave them out. Throws Error(configuration) naming the value and what there
/// is when it selects none. An empty value: all but loopback and docker, as NCCL takes them.
std::vector<std::string> selected_interfaces(const std::string& value,
                                             const std::vector<NetworkInterface>& interfaces);

}  // namespace moetwin
