#pragma once
// The core's layers, embedding and head, run once without tensors: what each pass costs in time,
// memory and traffic.

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "backends/sim/representative/loads.h"
#include "backends/sim/representative/solo.h"
#include "core/device/allocator.h"
#include "core/scenario/stages.h"

namespace moetwin {

/// What is in use after a pass more than before it, and at its fullest moment.
struct MemoryChange {
  ClassBytes after{}, peak{};
  void then(const MemoryChange& next);
};

/// One pass through a block, or several one after the other.
struct Pass {
  std::vector<Segment> pieces;  ///< cut where the experts' parameters are first needed
  Segment whole;
  MemoryChange memory;
};

/// The passes of one block: embedding, layer or head.
struct BlockPasses {
  Pass forward;
  Pass backward;  ///< with gradients of parameters, or (split) without
  Pass weights;   ///< split: gradients of parameters
};

struct ChunkRecord {
  Pass data;                              ///< tokens to the device
  std::map<int64_t, BlockPasses> blocks;  ///< by block number
  /// What guests that stay for the step add to its first forward and last backward; in no pass.
  StepParts once;
};

/// What a recording is made with.
struct RecordingSetup {
  const Scenario& scenario;
  const Grid& grid;
  CollectivePrices& prices;
  SoloSettings settings;
  std::shared_ptr<const RoutingTrace> trace;
  bool split = false;  ///< backwards leave gradients of parameters for later
};

/// A rank to record, and what its EP group has to do in the MoE layer; null where there is none.
struct RecordedRank {
  int64_t rank = 0;
  const LayerLoads* loads = nullptr;
};

/// A forward and backward of one micro-batch in step `step` through the layers of `range`, with the
/// embedding before them (`first`) and the head behind them (`last`). Of several ranks, which
/// exchange tokens with each other, each waits for the others; memory and traffic are those of the
/// first.
ChunkRecord record_chunk(const RecordingSetup& setup, const std::vector<RecordedRank>& ranks,
                         int64_t step, LayerRange range, bool first, bool last);

}  // namespace moetwin
