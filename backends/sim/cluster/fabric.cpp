#include "backends/sim/cluster/fabric.h"

#include <fmt/format.h>

#include "backends/sim/cluster/figures.h"

namespace moetwin {
namespace {

using Rule = Figures::Rule;
constexpr FabricKind kKinds[] = {FabricKind::fat_tree, FabricKind::rail_optimised,
                                 FabricKind::dragonfly, FabricKind::torus, FabricKind::platform};

}  // namespace

const char* fabric_kind_name(FabricKind kind) {
  constexpr const char* kNames[] = {"fat-tree", "rail-optimised", "dragonfly", "torus", "platform"};
  return kNames[static_cast<int>(kind)];
}

FabricProfile read_fabric(Figures& in) {
  FabricProfile fabric;
  const std::string kind = in.text_or("fabric.kind", "fat-tree");
  bool known = false;
  for (const FabricKind k : kKinds)
    if (kind == fabric_kind_name(k)) fabric.kind = k, known = true;
  if (!known)
    in.fault("fabric.kind",
             fmt::format("\"{}\" is not known; legal: fat-tree, rail-optimised, dragonfly, torus, "
                         "platform",
                         kind));
  if (fabric.kind == FabricKind::platform) {
    in.figure_or("fabric.oversubscription", Rule::positive, 1);
    fabric.platform_file = in.text_or("fabric.file", "");
    if (fabric.platform_file.empty())
      in.fault("fabric.file", "is missing; a SimGrid platform file (XML)");
    return fabric;
  }
  if (fabric.kind == FabricKind::torus) {
    in.figure_or("fabric.oversubscription", Rule::positive, 1);
    const char* keys[] = {"fabric.torus.x", "fabric.torus.y", "fabric.torus.z"};
    for (size_t d = 0; d < 3; ++d)
      if (d == 0 || in.has(keys[d])) fabric.torus[d] = in.count(keys[d], 1);
    fabric.torus_link = BytesPerSecond(in.figure("fabric.torus.bytes_per_second", Rule::positive));
    return fabric;
  }
  fabric.oversubscription = in.figure("fabric.oversubscription", Rule::positive);
  if (fabric.oversubscription < 1)
    in.fault("fabric.oversubscription", "must be 1 (non-blocking) or more");
  if (in.has("fabric.group_nodes")) fabric.group_nodes = in.count("fabric.group_nodes", 1);
  const std::string routing = in.text_or("fabric.routing", "adaptive");
  if (routing != "adaptive" && routing != "static")
    in.fault("fabric.routing",
             fmt::format("\"{}\" is not known; legal: adaptive, static", routing));
  if (routing == "static") {
    fabric.minimal_routing = fabric.kind == FabricKind::dragonfly;
    fabric.routing_share = in.figure("fabric.static_share", Rule::fraction);
  } else {
    in.figure_or("fabric.static_share", Rule::fraction, 1);
  }
  return fabric;
}

Fabric::Fabric(const FabricProfile& profile, int64_t nodes, int64_t nics_per_node,
               BytesPerSecond nic)
    : profile_(profile), nodes_(nodes), nics_per_node_(nics_per_node), nic_(nic) {
  groups_ = (nodes + profile.group_nodes - 1) / profile.group_nodes;
  if (profile.non_blocking()) return;
  switch (profile.kind) {
    case FabricKind::fat_tree:
      links_ = 2 * groups_;
      break;
    case FabricKind::rail_optimised:
      links_ = 2 * groups_ * nics_per_node;
      break;
    case FabricKind::dragonfly:
      links_ = profile.minimal_routing ? groups_ * groups_ : 2 * groups_;
      break;
    case FabricKind::platform:
      if (profile.platform) links_ = static_cast<int64_t>(profile.platform->names.size());
      break;
    case FabricKind::torus:
      links_ = 6 * profile.torus[0] * profile.torus[1] * profile.torus[2];
  }
}

BytesPerSecond Fabric::bandwidth(int64_t link) const {
  if (profile_.kind == FabricKind::platform)
    return BytesPerSecond(profile_.platform->bandwidth[static_cast<size_t>(link)]);
  if (profile_.kind == FabricKind::torus) return profile_.torus_link;
  double nics = static_cast<double>(profile_.group_nodes);
  if (profile_.kind != FabricKind::rail_optimised) nics *= static_cast<double>(nics_per_node_);
  // Of a dragonfly with minimal routing each link has its part of what leaves the group.
  const double ways =
      profile_.minimal_routing && groups_ > 1 ? static_cast<double>(groups_ - 1) : 1;
  return BytesPerSecond(nic_.value * nics / profile_.oversubscription * profile_.routing_share /
                        ways);
}

std::string Fabric::name(int64_t link) const {
  const char* direction = link % 2 == 0 ? "up" : "down";
  switch (profile_.kind) {
    case FabricKind::fat_tree:
      return fmt::format("leaf{}-{}", link / 2, direction);
    case FabricKind::rail_optimised:
      return fmt::format("leaf{}-rail{}-{}", link / 2 / nics_per_node_, link / 2 % nics_per_node_,
                         direction);
    case FabricKind::dragonfly:
      return profile_.minimal_routing
                 ? fmt::format("group{}-group{}", link / groups_, link % groups_)
                 : fmt::format("group{}-{}", link / 2, direction);
    case FabricKind::platform:
      return "platform-" + profile_.platform->names[static_cast<size_t>(link)];
    case FabricKind::torus:
      return fmt::format("node{}-{}{}", link / 6, "xyz"[link / 2 % 3], "+-"[link % 2]);
  }
  return "";
}

void Fabric::route(int64_t from_nic, int64_t to_nic, std::vector<int64_t>& links) const {
  if (links_ == 0) return;
  const int64_t from = from_nic / nics_per_node_, to = to_nic / nics_per_node_;
  if (profile_.kind == FabricKind::torus) return torus_route(from, to, links);
  if (const PlatformTable* table = profile_.platform.get()) {
    const bool by_nic = table->hosts >= nodes_ * nics_per_node_;
    const int64_t a = by_nic ? from_nic : from, b = by_nic ? to_nic : to;
    const auto& route = table->routes[static_cast<size_t>(a * table->hosts + b)];
    links.insert(links.end(), route.begin(), route.end());
    return;
  }
  const int64_t a = from / profile_.group_nodes, b = to / profile_.group_nodes;
  if (profile_.kind == FabricKind::rail_optimised) {
    const int64_t leaf_a = a * nics_per_node_ + from_nic % nics_per_node_;
    const int64_t leaf_b = b * nics_per_node_ + to_nic % nics_per_node_;
    if (leaf_a != leaf_b) links.insert(links.end(), {2 * leaf_a, 2 * leaf_b + 1});
  } else if (a != b) {
    if (profile_.minimal_routing)
      links.push_back(a * groups_ + b);
    else
      links.insert(links.end(), {2 * a, 2 * b + 1});
  }
}

// Dimension after dimension, the shorter way round; of two equal ways the one upwards.
void Fabric::torus_route(int64_t from, int64_t to, std::vector<int64_t>& links) const {
  int64_t stride = 1, at = from;
  for (size_t d = 0; d < 3; ++d) {
    const int64_t size = profile_.torus[d];
    const auto place = [&](int64_t node) { return node / stride % size; };
    const int64_t ahead = (place(to) - place(at) + size) % size;
    const bool up = 2 * ahead <= size;
    for (int64_t step = up ? ahead : size - ahead; step > 0; --step) {
      links.push_back(6 * at + 2 * static_cast<int64_t>(d) + (up ? 0 : 1));
      const int64_t next = (place(at) + (up ? 1 : size - 1)) % size;
      at += (next - place(at)) * stride;
    }
    stride *= size;
  }
}

}  // namespace moetwin
