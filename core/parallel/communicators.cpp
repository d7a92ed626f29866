#include "core/parallel/communicators.h"

#include <algorithm>

#include "core/base/error.h"

namespace moetwin {

namespace {
/// Edge e leads from stage e to the next; with virtual stages also from the last to the first. All
/// ranks make them in ascending order, so nobody waits in a circle.
StageLinks make_links(Backend& device, const Grid& grid, bool ring) {
  const int64_t rank = device.properties().rank, p = grid.pp(), pp = grid.coordinates(rank).pp;
  const int64_t stage = grid.world() / p, first = rank - pp * stage;
  StageLinks links;
  for (int64_t edge = 0; edge < (ring ? p : p - 1); ++edge) {
    const int64_t next = (edge + 1) % p, low = std::min(edge, next), high = std::max(edge, next);
    if (pp != edge && pp != next) continue;
    const Group pair{first + low * stage, 1, 0, 2, (high - low) * stage};
    auto& activations = pp == edge ? links.forward_out : links.forward_in;
    auto& gradients = pp == edge ? links.backward_in : links.backward_out;
    // Of two stages the edge back has the same two ranks.
    const bool back = next == 0;
    activations = device.communicator(pair, back ? "pp_forward_around" : "pp_forward");
    gradients = device.communicator(pair, back ? "pp_backward_around" : "pp_backward");
  }
  return links;
}
}  // namespace

Communicators make_communicators(Backend& device, const Grid& grid, const Scenario& scenario) {
  const int64_t rank = device.properties().rank;
  const auto make = [&](GroupKind kind, const char* name) -> std::unique_ptr<Communicator> {
    const Group group = grid.group(kind, rank);
    return group.size() > 1 ? device.communicator(group, name) : nullptr;
  };
  Communicators c;
  c.tp = make(GroupKind::tp, "tp");
  c.cp = make(GroupKind::cp, "cp");
  c.ep = make(GroupKind::ep, "ep");
  c.expert_tp = make(GroupKind::expert_tp, "expert_tp");
  c.expert_dp = make(GroupKind::expert_dp, "expert_dp");
  c.dense_dp = make(GroupKind::dense_dp, "dense_dp");
  // Without TP no parameter is summed over it.
  if (grid.tp() > 1) c.stage = make(GroupKind::stage, "stage");
  if (scenario.model_config.num_moe_layers() > 0) c.balance = make(GroupKind::dense_dp, "balance");
  c.world = make(GroupKind::world, "world");
  if (grid.pp() > 1)
    c.stages = make_links(device, grid, scenario.distributed_config.virtual_pipeline_size > 1);
  if (scenario.model_config.tie_embeddings) c.embedding = make(GroupKind::embedding, "embedding");
  return c;
}

Communicator* Communicators::reduction(GroupKind kind) const {
  if (kind == GroupKind::dense_dp) return dense_dp.get();
  if (kind == GroupKind::expert_dp) return expert_dp.get();
  if (kind == GroupKind::stage) return stage.get();
  throw Error(ErrorClass::internal, "gradients are summed over dense-DP, stage or expert-DP");
}

}  // namespace moetwin
