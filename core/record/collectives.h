#pragma once
// What collectives a run did, by kind, purpose, group and algorithm: the table behind "who talks to
// whom, how often, how fast".

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "core/device/profile.h"

namespace moetwin {

/// Sums over the ranks that sent something, and over steps.
struct CollectiveSums {
  int64_t ranks = 0;  ///< rank-steps
  int64_t calls = 0, bytes = 0, off_node = 0;
  double seconds = 0;  ///< NaN: unknown
};
/// By kind (as the report names it), purpose, group, algorithm, members of the group.
using CollectiveKey = std::tuple<std::string, std::string, std::string, std::string, int64_t>;
using CollectiveTable = std::map<CollectiveKey, CollectiveSums>;

/// One rank's in one step. Nothing where it sends nothing: receivers, barriers.
void add_collective(CollectiveTable& table, const std::string& kind, const Traffic& traffic);
void add_collectives(CollectiveTable& table, const CollectiveTable& step);

/// A line of the table: means of a step and of a rank that sends.
struct CollectiveLine {
  std::string kind, purpose, group, algorithm;
  int64_t members = 0;
  double ranks = 0;  ///< that send
  double calls = 0, bytes = 0, off_node = 0;
  double seconds = 0;  ///< NaN: unknown
  /// Bytes that a rank sends over its time: nccl-tests' bus bandwidth, where those are
  /// 2 (n - 1) / n of an all-reduce's size, (n - 1) / n of a gathered, scattered or exchanged one.
  /// NaN: unknown.
  double bus_bandwidth() const;
};
/// Most time first, then most bytes.
std::vector<CollectiveLine> collective_lines(const CollectiveTable& table, int64_t steps);

/// The first `most` as lines of a screen, with a heading; none where nothing is sent.
std::vector<std::string> collective_table_lines(const std::vector<CollectiveLine>& lines,
                                                size_t most);

}  // namespace moetwin
