#include "core/parallel/communicators.h"

#include "core/base/error.h"

namespace moetwin {

Communicators make_communicators(Backend& device, const Grid& grid, bool balance) {
  const int64_t rank = device.properties().rank;
  const auto make = [&](GroupKind kind, const char* name) -> std::unique_ptr<Communicator> {
    const Group group = grid.group(kind, rank);
    return group.size() > 1 ? device.communicator(group, name) : nullptr;
  };
  Communicators c;
  c.ep = make(GroupKind::ep, "ep");
  c.expert_dp = make(GroupKind::expert_dp, "expert_dp");
  c.dense_dp = make(GroupKind::dense_dp, "dense_dp");
  if (balance) c.balance = make(GroupKind::dense_dp, "balance");
  c.world = make(GroupKind::world, "world");
  return c;
}

Communicator* Communicators::reduction(GroupKind kind) const {
  if (kind == GroupKind::dense_dp) return dense_dp.get();
  if (kind == GroupKind::expert_dp) return expert_dp.get();
  throw Error(ErrorClass::internal, "gradients are summed over dense-DP or expert-DP");
}

}  // namespace moetwin
