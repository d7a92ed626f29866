#pragma once
// The communicators of one rank: one per group and stream that uses it, made in one order on all
// ranks.

#include <memory>

#include "core/device/backend.h"
#include "core/topology/grid.h"

namespace moetwin {

/// From stage to stage, two ranks each; null where the pipeline begins or ends. `forward` carries
/// activations, `backward` gradients the other way.
struct StageLinks {
  std::unique_ptr<Communicator> forward_in, forward_out, backward_in, backward_out;
};

struct Communicators {
  std::unique_ptr<Communicator> tp;         ///< activations of split layers; compute stream
  std::unique_ptr<Communicator> cp;         ///< attention; compute and dispatch stream
  std::unique_ptr<Communicator> ep;         ///< token exchange; dispatch stream
  std::unique_ptr<Communicator> expert_tp;  ///< tokens of split experts; dispatch stream
  std::unique_ptr<Communicator> expert_dp;  ///< expert gradients; reduction stream
  std::unique_ptr<Communicator> dense_dp;   ///< dense gradients; reduction stream
  std::unique_ptr<Communicator> stage;    ///< dense gradients summed over TP too; reduction stream
  std::unique_ptr<Communicator> balance;  ///< expert counts over dense-DP; compute stream
  std::unique_ptr<Communicator> world;    ///< gradient norm; compute stream
  StageLinks stages;                      ///< streams of StageExchange
  std::unique_ptr<Communicator> embedding;  ///< gradients of tied embeddings; reduction stream

  /// The one that sums gradients of this group kind; null where the group has one member.
  Communicator* reduction(GroupKind kind) const;
};

/// Groups of one member get no communicator: a collective of one is no collective.
Communicators make_communicators(Backend& device, const Grid& grid, const Scenario& scenario);

}  // namespace moetwin
