#pragma once
// What a pipeline stage does around its layers, by the core's own code on one rank: gradients to
// zero, their reduction bucket by bucket, norm, optimizer, gather of parameters, the figures' way
// to the host; and the memory that stays.

#include <map>
#include <memory>
#include <vector>

#include "backends/sim/representative/recording.h"
#include "core/parallel/fsdp.h"

namespace moetwin {

/// One rank of a stage with the parameters of all its layers, ready to be driven.
class StageProgram {
 public:
  StageProgram(const RecordingSetup& setup, int64_t rank);
  ~StageProgram();
  StageProgram(const StageProgram&) = delete;
  StageProgram& operator=(const StageProgram&) = delete;

  SoloBackend& device();
  Context& context();
  const MemoryUse& memory() const;
  /// Whether parameters come and go around the blocks (then the hooks of `context().units` say
  /// when).
  bool gathers() const;

  // The parts of a step, in order.
  void begin();
  void block_done(int64_t block);  ///< of the last micro-batch's backward
  void finish();
  void measure();  ///< the norm: all stages leave it together
  void update();
  void report();

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

/// The same as lists, for stages whose parameters stay.
struct StageRecord {
  Segment begin, finish, measure, update, report;
  std::map<int64_t, Segment> block_done;  ///< where there is anything to do
  ClassBytes memory{}, peak{};            ///< all along; while the optimizer works
  int64_t host_bytes = 0;
  int64_t communicator_bytes = 0;
};
StageRecord record_stage(StageProgram& program, const std::vector<int64_t>& blocks);

}  // namespace moetwin
