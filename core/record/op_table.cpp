#include "core/record/op_table.h"

#include <algorithm>

namespace moetwin {
namespace {

void add_rank(std::map<OpKey, OpRow>& rows, const RankOps& ops, int64_t rank) {
  for (const auto& [key, sums] : ops) {
    OpRow& row = rows[key];
    row.key = key;
    row.sums.calls += sums.calls;
    row.sums.seconds += sums.seconds;
    row.sums.bytes += sums.bytes;
    if (sums.seconds <= row.most_seconds) continue;
    row.most_seconds = sums.seconds;
    row.most_rank = rank;
  }
}

RankOps without_places(const RankOps& ops) {
  RankOps merged;
  for (const auto& [key, sums] : ops) {
    OpSums& to = merged[{key.name, "", key.activity, Phase::other, 0}];
    to.calls += sums.calls;
    to.seconds += sums.seconds;
    to.bytes += sums.bytes;
  }
  return merged;
}

std::vector<OpRow> sorted(const std::map<OpKey, OpRow>& rows) {
  std::vector<OpRow> list;
  for (const auto& [key, row] : rows) list.push_back(row);
  std::stable_sort(list.begin(), list.end(),
                   [](const OpRow& a, const OpRow& b) { return a.sums.seconds > b.sums.seconds; });
  return list;
}

}  // namespace

RankOps rank_ops(const Profile& profile) {
  RankOps ops;
  for (const Interval& interval : profile.intervals) {
    if (interval.stream < 0) continue;
    const char* name = interval.name[0] ? interval.name : activity_name(interval.activity);
    OpSums& sums = ops[{name, interval.group, interval.activity, interval.phase, interval.stream}];
    ++sums.calls;
    sums.seconds += interval.end - interval.start;
    sums.bytes += interval.bytes;
  }
  return ops;
}

double OpTable::device_seconds() const {
  double seconds = 0;
  for (const OpRow& row : rows) seconds += row.sums.seconds;
  return seconds;
}

void OpTableBuilder::add_step(int64_t step, const std::vector<RankOps>& ranks) {
  steps_.push_back(step);
  ranks_ = static_cast<int64_t>(ranks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    add_rank(rows_, ranks[rank], static_cast<int64_t>(rank));
    add_rank(by_op_, without_places(ranks[rank]), static_cast<int64_t>(rank));
  }
}

OpTable OpTableBuilder::build() const {
  OpTable table;
  table.steps = steps_;
  table.ranks = ranks_;
  table.by_op = sorted(by_op_);
  table.rows = sorted(rows_);
  return table;
}

}  // namespace moetwin
