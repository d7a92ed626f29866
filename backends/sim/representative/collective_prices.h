#pragma once
// Seconds of a collective when all groups like it do the same at once, as training does: the plan
// of one group, with every port shared by the ranks of all groups that use it.

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "backends/sim/collective/plan.h"
#include "backends/sim/cost/beside.h"
#include "backends/sim/cost/corrections.h"

namespace moetwin {

/// Share of a collective's time in which a kind of port of its busiest member is in use.
struct PortUse {
  double nvlink = 0, nic = 0;
  Beside beside;  ///< and what it takes from kernels of that member meanwhile
  /// This is the mean over `before` seconds; now over `seconds` of `use` too.
  void mix(double before, const PortUse& use, double seconds);
  /// Of the time that both go on at once, what each loses to the other.
  double shared_with(const PortUse& other) const {
    return std::max(nvlink * other.nvlink, nic * other.nic);
  }
};

struct CollectivePrice {
  double seconds = 0;
  PortUse ports;
  double sent = 0, sent_off_node = 0;  ///< mean over members
  const char* way = "";                ///< Plan::way
};

class CollectivePrices {
 public:
  CollectivePrices(const Machine& machine, const NcclChoice& choice);

  const Machine& machine() const { return machine_; }
  /// All kinds but all_to_all_v. `bytes` as in CollectiveShape. `listed_bytes`: mean over members,
  /// as op lists have it. A send is from member 0 to member 1.
  const CollectivePrice& price(CollectiveKind kind, const Group& group, const std::string& name,
                               double bytes, double listed_bytes);
  /// From member i to member j at [i * n + j].
  CollectivePrice all_to_all(const Group& group, const std::string& name,
                             std::vector<double> pair_bytes);

 private:
  const NodesOfGroup& nodes(const Group& group);
  CollectivePrice planned(CollectiveShape& shape, const char* op, const std::string& name,
                          double listed_bytes);

  using GroupKey = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>;
  const Machine& machine_;
  NcclChoice choice_;
  Corrections corrections_;
  std::map<GroupKey, NodesOfGroup> nodes_;
  std::map<std::tuple<CollectiveKind, GroupKey, double, std::string>, CollectivePrice> prices_;
  Plan plan_;
};

}  // namespace moetwin
