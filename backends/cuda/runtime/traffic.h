#pragma once
// Bytes a rank sends in a collective: of the ring for those that NCCL may do in several ways, so
// that figures do not depend on its choice and equal the modelled ones.

#include <cstdint>
#include <vector>

#include "core/device/communicator.h"
#include "core/device/profile.h"

namespace moetwin {

struct SentVolume {
  int64_t bytes = 0;
  int64_t off_node = 0;  ///< of these, to ranks on other nodes
};

/// `node_of`: by world rank.
SentVolume sent_by(const CollectiveCall& call, const Group& group, int64_t rank_in_group,
                   const std::vector<int64_t>& node_of);

/// Sums by kind, purpose and group.
class TrafficLog {
 public:
  void add(const CollectiveCall& call, const std::string& group, int64_t members,
           const SentVolume& sent);
  std::vector<Traffic> take();

 private:
  std::vector<Traffic> traffic_;
};

}  // namespace moetwin
