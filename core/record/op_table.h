#pragma once
// Ops by the time they took on devices: what the recorded steps of a profile add up to.

#include <json/value.h>

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/device/profile.h"

namespace moetwin {

/// What is added up: an op (or collective of a group) in a phase on a stream.
struct OpKey {
  std::string name, group;  ///< group: of a collective; else empty
  Activity activity = Activity::compute;
  Phase phase = Phase::other;
  int32_t stream = 0;
  auto operator<=>(const OpKey&) const = default;
};

struct OpSums {
  int64_t calls = 0;
  double seconds = 0;
  int64_t bytes = 0;  ///< sent (collectives); read and written (ops, copies)
};
using RankOps = std::map<OpKey, OpSums>;

/// What one rank did in one step on its device (not its host thread). Needs detailed intervals.
RankOps rank_ops(const Profile& profile);

/// One line of the table.
struct OpRow {
  OpKey key;  ///< of by_op: without group, phase and stream
  OpSums sums;
  /// The most that one rank took in one step, and which rank (the lowest of equals).
  double most_seconds = 0;
  int64_t most_rank = 0;
};

struct OpTable {
  std::vector<int64_t> steps;  ///< recorded, ascending
  int64_t ranks = 0;
  /// Over all ranks and steps, longest first; equal times: by name. Overlapping ops count each, so
  /// they may add up to more than the steps.
  std::vector<OpRow> by_op, rows;
  double device_seconds() const;  ///< of all rows
};

/// Adds up steps of whole jobs.
class OpTableBuilder {
 public:
  /// Every rank of a step, in ascending order of ranks, so that sums always have the same bits.
  void add_step(int64_t step, const std::vector<RankOps>& ranks);
  OpTable build() const;

 private:
  std::vector<int64_t> steps_;
  int64_t ranks_ = 0;
  std::map<OpKey, OpRow> by_op_, rows_;
};

/// profile.csv: `rows` with a header.
std::string op_table_csv(const OpTable& table);
/// Key `profile` of report.json: steps, ranks and `by_op`.
Json::Value op_table_json(const OpTable& table);
/// "step 3", "steps 3-5", "6 steps from 3 to 10" of ascending steps, at least one.
std::string steps_text(const std::vector<int64_t>& steps);
/// A heading and the first `most` ops, for a screen.
std::vector<std::string> op_table_lines(const OpTable& table, size_t most);

}  // namespace moetwin
