#pragma once
// When a rank saves, and what of its time that takes.

#include "core/scenario/scenario.h"
#include "core/train/checkpoint/state.h"
#include "core/train/checkpoint/writer.h"

namespace moetwin {

class Saver {
 public:
  /// `writer` is null where nothing is written: with numerics none saves take their time only.
  Saver(const CheckpointConfig& config, Context& context, TrainingState& state,
        CheckpointWriter* writer)
      : config_(config), context_(context), state_(state), writer_(writer) {}

  /// After `step`: `last` of this run, `early` when a signal or a verdict made it the last.
  bool due(int64_t step, bool last, bool early) const;
  /// Copies the state to the host and hands it in. On the modelled cluster writing takes
  /// write_bytes_per_second: at once, or asynchronously until the next save, which waits for it.
  void save(const TrainingPosition& position);
  /// At the end of the run: what is under way is complete when the last rank returns.
  void end();

 private:
  CheckpointConfig config_;
  Context& context_;
  TrainingState& state_;
  CheckpointWriter* writer_;
  double busy_until_ = 0;  ///< clock of the rank
};

}  // namespace moetwin
