#pragma once
// What lies between the NICs of the nodes: the links that a message takes from one to another.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/units.h"

namespace moetwin {

class Figures;

enum class FabricKind : uint8_t {
  fat_tree,        ///< nodes below leaf switches; leaves joined by a spine
  rail_optimised,  ///< the k-th NICs of a group's nodes below the leaf of rail k; a spine over all
  dragonfly,       ///< groups of nodes; links from every group to every other
  torus,           ///< every node joined to its neighbours in up to three dimensions
  platform         ///< the links of a SimGrid platform file
};

/// What a platform file says: its links, and which of them lie between any two of its hosts.
struct PlatformTable {
  int64_t hosts = 0;
  std::vector<std::string> names;            ///< of links
  std::vector<double> bandwidth;             ///< bytes per second, by link
  std::vector<std::vector<int32_t>> routes;  ///< from a to b at [a * hosts + b]
};

/// A profile's section `fabric`.
struct FabricProfile {
  FabricKind kind = FabricKind::fat_tree;
  /// NIC bandwidth below a leaf (of a group) over the bandwidth that leaves it; 1: nothing is lost.
  double oversubscription = 1;
  int64_t group_nodes = 1;  ///< nodes below a leaf, or of a group
  /// Of the links above leaves and between groups: what is left of their bandwidth when flows are
  /// hashed to paths and collide; 1: adaptive routing.
  double routing_share = 1;
  /// dragonfly: messages take the direct link between two groups only; else they spread over all.
  bool minimal_routing = false;
  std::array<int64_t, 3> torus{1, 1, 1};  ///< nodes in each dimension
  BytesPerSecond torus_link;              ///< to each neighbour
  std::string platform_file;
  std::shared_ptr<const PlatformTable> platform;  ///< read where SimGrid is at hand

  /// Messages between NICs meet no link of the fabric that could hold them up.
  bool non_blocking() const {
    return (kind == FabricKind::fat_tree || kind == FabricKind::rail_optimised) &&
           oversubscription == 1 && routing_share == 1;
  }
};
const char* fabric_kind_name(FabricKind kind);
FabricProfile read_fabric(Figures& in);

class Fabric {
 public:
  /// Of so many nodes with NICs of this (effective) bandwidth.
  Fabric(const FabricProfile& profile, int64_t nodes, int64_t nics_per_node, BytesPerSecond nic);

  /// Directed links, numbered from 0; none where the fabric is non-blocking.
  int64_t links() const { return links_; }
  BytesPerSecond bandwidth(int64_t link) const;
  std::string name(int64_t link) const;
  /// `bytes` through a link take as long as the result through link 0.
  double as_of_first(int64_t link, double bytes) const {
    return bytes * bandwidth(0).value / bandwidth(link).value;
  }
  /// Appends the links from a NIC (its number, counted over all nodes) to one of another node.
  void route(int64_t from_nic, int64_t to_nic, std::vector<int64_t>& links) const;

 private:
  void torus_route(int64_t from, int64_t to, std::vector<int64_t>& links) const;
  FabricProfile profile_;
  int64_t nodes_, nics_per_node_, groups_, links_ = 0;
  BytesPerSecond nic_;
};

}  // namespace moetwin
