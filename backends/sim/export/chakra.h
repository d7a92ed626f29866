#pragma once
// Chakra execution traces of one step (github.com/mlcommons/chakra, et_def.proto, version 0.0.4 of
// the schema): a file per rank that ASTRA-sim replays on a network of its own, and the groups that
// its collectives name.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backends/sim/alike/alike.h"
#include "backends/sim/alike/tape.h"
#include "backends/sim/cluster/machine.h"
#include "backends/sim/collective/choice.h"

namespace moetwin {

/// A node is
///   COMP_NODE        one launch: num_ops (FLOP, at least 1), tensor_size (bytes read and written,
///                    at least a page), duration_micros on this rank's GPU with its slowness and
///                    faults that hold throughout; or a copy between GPU and host
///   COMM_COLL_NODE   comm_type, comm_size (bytes that the rank puts in), pg_name, duration_micros
///   on
///                    this machine with nothing beside it
///   COMM_SEND_NODE,  of a pipeline, and of an all-to-all whose pairs differ, one for each pair
///   with COMM_RECV_NODE   bytes: comm_src, comm_dst, comm_size, comm_tag
/// It depends on what its stream waits for: the launch before it, the events waited for, and what
/// the host had waited for; a collective on the rank's collective before it, too. Durations are
/// whole microseconds whose sum along a stream is right. Files: DIRECTORY/step.RANK.et,
/// DIRECTORY/comm_groups.json.
class ChakraExport {
 public:
  /// Throws Error(configuration) where the directory cannot be made.
  ChakraExport(const Machine& machine, const NcclChoice& choice, const Grid& grid,
               const AlikeRanks& alike, const std::string& directory, int64_t step);
  /// The next segment of a leader's tape.
  void add(int64_t leader, const TapeSegment& segment);
  /// After all of the step; throws Error(configuration) where a file cannot be written.
  void write() const;

 private:
  struct Program {
    std::vector<TapeSegment::GroupMade> groups;
    int64_t events_before = 0;  ///< recorded before the step
    bool found = false;
    TapeSegment step;
  };

  const Machine& machine_;
  const NcclChoice& choice_;
  const Grid& grid_;
  const AlikeRanks& alike_;
  std::string directory_;
  int64_t step_;
  std::map<int64_t, Program> programs_;  ///< by leader
};

}  // namespace moetwin
