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
  c.tp = make(GroupKind::tp, "tp");
  c.ep = make(GroupKind::ep, "ep");
  c.expert_tp = make(GroupKind::expert_tp, "expert_tp");
  c.expert_dp = make(GroupKind::expert_dp, "expert_dp");
  c.dense_dp = make(GroupKind::dense_dp, "dense_dp");
  // Without TP no parameter is summed over it.
  if (grid.tp() > 1) c.stage = make(GroupKind::stage, "stage");
  if (balance) c.balance = make(GroupKind::dense_dp, "balance");
  c.world = make(GroupKind::world, "world");
  return c;
}

Communicator* Communicators::reduction(GroupKind kind) const {
  if (kind == GroupKind::dense_dp) return dense_dp.get();
  if (kind == GroupKind::expert_dp) return expert_dp.get();
  if (kind == GroupKind::stage) return stage.get();
  throw Error(ErrorClass::internal, "gradients are summed over dense-DP, stage or expert-DP");
}

}  // namespace moetwin
