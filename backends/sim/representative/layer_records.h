#pragma once
// The passes of layers, embedding and head under a routing, each recorded once and kept: equal
// layers of a model, and those of the next scenario where nothing that matters to them differs.

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/sim/cluster/profile.h"
#include "backends/sim/representative/loads.h"
#include "backends/sim/representative/recording.h"
#include "backends/sim/representative/recording_keys.h"

namespace moetwin {

/// A layer, and the assignments of its EP group: of all sources, and of them those over capacity.
struct LayerKind {
  const BlockPasses* passes = nullptr;
  int64_t routed = 0, dropped = 0;
  StepParts once;  ///< beside its passes, once a step: ChunkRecord::once
};

class LayerRecords {
 public:
  LayerRecords(const GpuProfile& gpu, References references)
      : gpu_(gpu), references_(std::move(references)) {}

  /// Before what follows: the scenario whose layers are asked for. `choice`: of collective
  /// algorithms, in words.
  void begin(const Scenario& scenario, const Grid& grid, const std::string& choice,
             const RecordingKeys& keys);
  /// Of the scenario; read once for scenarios that name the same.
  const std::shared_ptr<const RoutingTrace>& trace() const { return trace_; }

  /// Layer number `layer` in step `step`, on the stage whose first rank is `rank`.
  LayerKind layer(const RecordingSetup& setup, int64_t rank, int64_t step, int64_t layer);
  /// Embedding (`first`) and head (`last`) without layers between them.
  const ChunkRecord& ends(const RecordingSetup& setup, int64_t rank, int64_t step, bool first,
                          bool last);

 private:
  void read_trace(const Scenario& scenario);
  int64_t number_of(const std::string& text);
  std::string begin_key(const RecordingSetup& setup) const;
  const SourceAssignments& counts_of(const RecordingSetup& setup, int64_t ddp, int64_t step,
                                     int64_t layer);
  const ChunkRecord& chunk(const RecordingSetup& setup, const std::vector<RecordedRank>& ranks,
                           int64_t step, LayerRange range, bool first, bool last);
  std::vector<RecordedRank> slowest(const RecordingSetup& setup, int64_t rank, int64_t step,
                                    int64_t layer, std::vector<std::unique_ptr<LayerLoads>>& loads);

  const GpuProfile& gpu_;
  References references_;
  /// Numbers of texts: long keys are compared once a scenario.
  std::unordered_map<std::string, int64_t> numbers_;
  std::unordered_map<std::string, LayerKind> layers_;
  std::unordered_map<std::string, std::unique_ptr<ChunkRecord>> chunks_;
  std::unordered_map<std::string, SourceAssignments> counts_;
  std::string trace_key_;
  std::shared_ptr<const RoutingTrace> trace_;
  // Of the scenario at hand.
  int64_t layer_number_ = 0, routing_number_ = 0;
  bool by_layer_ = false, by_step_ = false;
};

}  // namespace moetwin
