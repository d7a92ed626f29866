#pragma once
// A step from its passes: stages run their actions in the order of the schedule, each as soon as
// what it needs has arrived.

#include <array>
#include <deque>
#include <map>
#include <vector>

#include "backends/sim/representative/recording.h"
#include "backends/sim/representative/stage.h"
#include "core/parallel/pipeline_schedule.h"

namespace moetwin {

/// A block of a chunk: its number and passes.
struct PlacedBlock {
  int64_t block = 0;
  const BlockPasses* passes = nullptr;
};

/// The blocks of a virtual stage in the order data flows, and their passes one after the other.
struct ChunkPasses {
  const Pass* data = nullptr;  ///< null: the stage loads no tokens
  std::vector<PlacedBlock> blocks;
  bool tied = false;  ///< the head here reads the table of the embedding here
  Segment forward, backward, weights;
  MemoryChange forward_memory, backward_memory, weights_memory;

  void multiply();
};

struct StageSetup {
  std::vector<const ChunkPasses*> chunks;
  const StageRecord* record = nullptr;  ///< null where `program` is driven
  StageProgram* program = nullptr;
  bool tied = false;  ///< sums gradients of tied embeddings with another stage
};

struct ComposeSetup {
  std::string schedule;
  int64_t micro_batches = 1, virtual_chunks = 1;
  double launch_seconds = 0;
  double pass_seconds = 0;   ///< host time of a pass where there are stages
  bool passes_wait = false;  ///< the host begins a pass when the GPU has done all before it
  /// Of a hidden state from stage s to the next (and from the last to the first), by s; and back.
  std::vector<double> forward_seconds, backward_seconds;
  std::vector<bool> off_node;  ///< whether these leave the node
  const char* send_way = "";   ///< Plan::way of these
  PortUse stage_ports;         ///< of these transfers
  int64_t hidden_bytes = 0;    ///< of a stage, held while it is under way
  int64_t sent_bytes = 0;      ///< of them, those that a rank sends
  std::vector<StageSetup> stages;
};

struct StageResult {
  StepParts parts;
  int64_t peak_bytes = 0;
  ClassBytes classes{};
  ClassBytes lasting{};    ///< what stays from step to step
  int64_t kept_bytes = 0;  ///< most activations that waited for their backward between passes
  int64_t host_syncs = 0;
  std::vector<Sent> sent;  ///< by the program, if one is driven: gathers and reductions
};

struct StepResult {
  double seconds = 0;
  std::vector<StageResult> stages;
};

/// Driving programs takes long, and micro-batches follow each other alike: where there are many,
/// the difference between a few and some more is what each of the others costs. `exactly`: all are
/// run.
/// Throws Error(internal) when no stage can go on: a schedule that is none.
StepResult compose(const ComposeSetup& setup, bool exactly = false);

}  // namespace moetwin
