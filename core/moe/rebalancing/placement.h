#pragma once
// Where experts are at home: permutations of the experts of an EP group over its ranks, and the
// move from one to another. A place is rank x (E / P) + slot.

#include <cstdint>
#include <vector>

#include "core/device/communicator.h"
#include "core/nn/context.h"

namespace moetwin {

/// By expert: its place. At first expert e is in place e.
using ExpertPlaces = std::vector<int64_t>;
ExpertPlaces first_places(int64_t experts);

struct PlacementShape {
  int64_t ranks = 1;
  int64_t groups = 1;  ///< of experts (routing.groups), which keep together on a node
  int64_t nodes = 1;
  double threshold =
      1;  ///< nothing moves where the fullest rank has at most so many times the mean
};
/// EPLB's packing without replicas of `loads` (by expert), its packs given to the ranks that have
/// most of their experts already. `now` where that is as good.
ExpertPlaces choose_places(const std::vector<double>& loads, const ExpertPlaces& now,
                           const PlacementShape& shape);

/// Sends what experts consist of to their new places; every rank of the group calls. `tensors`:
/// [E / P, ...] of this rank, one after the other through buffers of what leaves and what comes.
/// The host waits for nothing; compute does.
void move_experts(Context& context, Communicator& ep, const ExpertPlaces& from,
                  const ExpertPlaces& to, const std::vector<Tensor>& tensors);

}  // namespace moetwin
