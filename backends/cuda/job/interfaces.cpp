#include "backends/cuda/job/interfaces.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <memory>
#include <sstream>

#include "backends/cuda/job/socket.h"
#include "core/base/error.h"

namespace moetwin {

std::vector<NetworkInterface> network_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  std::vector<NetworkInterface> found;
  for (const ifaddrs* i = list; i; i = i->ifa_next) {
    auto it = std::find_if(found.begin(), found.end(),
                           [&](const NetworkInterface& n) { return n.name == i->ifa_name; });
    if (it == found.end()) {
      it = found.insert(it, NetworkInterface{i->ifa_name, (i->ifa_flags & IFF_UP) != 0,
                                             (i->ifa_flags & IFF_LOOPBACK) != 0, ""});
    }
    if (!i->ifa_addr || !it->address.empty()) continue;
    char text[INET6_ADDRSTRLEN] = {};
    if (i->ifa_addr->sa_family == AF_INET)
      ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr, text,
                  sizeof text);
    else if (i->ifa_addr->sa_family == AF_INET6)
      ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr, text,
                  sizeof text);
    it->address = text;
  }
  return found;
}

std::vector<std::string> selected_interfaces(const std::string& value,
                                             const std::vector<NetworkInterface>& interfaces) {
  std::string list = value;
  const bool excludes = list.rfind('^', 0) == 0;
  if (excludes) list.erase(0, 1);
  const bool whole = list.rfind('=', 0) == 0;
  if (whole) list.erase(0, 1);
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');)
    if (!part.empty()) parts.push_back(part);
  std::vector<std::string> selected;
  for (const NetworkInterface& i : interfaces) {
    if (parts.empty()) {
      if (i.up && !i.loopback && i.name.rfind("docker", 0) != 0) selected.push_back(i.name);
      continue;
    }
    const bool named = std::any_of(parts.begin(), parts.end(), [&](const std::string& part) {
      return whole ? i.name == part : i.name.rfind(part, 0) == 0;
    });
    if (named != excludes) selected.push_back(i.name);
  }
  if (!selected.empty() || value.empty()) return selected;
  std::string there;
  for (const NetworkInterface& i : interfaces)
    there += fmt::format("{}{}{}", there.empty() ? "" : ", ", i.name,
                         i.address.empty() ? "" : " (" + i.address + ")");
  throw Error(
      ErrorClass::configuration,
      fmt::format("NCCL_SOCKET_IFNAME={} selects no network interface of {}; it has: {}. It "
                  "takes a list of prefixes (eth,ib), =name for a whole name, ^name to leave "
                  "one out; nodes whose interfaces have other names need a list of both",
                  value, host_name(), there.empty() ? "none" : there));
}

}  // namespace moetwin
