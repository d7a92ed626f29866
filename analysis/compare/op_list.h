#pragma once
// The op lists of timeline.json: what every rank launched on every stream in one step, in order.

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "analysis/result/run.h"

namespace moetwin {

struct ListedOp {
  std::string name, group;  ///< group of ranks; empty for an op on one device
  std::string activity, phase;
  int64_t bytes = 0, step = 0;
  double start = 0, seconds = 0;
};

/// By (rank, stream), in order of start. Streams count from 0, the host thread is -1.
using OpLists = std::map<std::pair<int64_t, int64_t>, std::vector<ListedOp>>;

/// Empty when the run has no timeline.json. Throws Error(configuration) when it is broken.
OpLists read_op_lists(const Run& run);
OpLists read_op_lists(const std::string& path);

/// What all ops of one kind, group and size took together over ranks.
struct OpClass {
  std::string name, group, activity;
  int64_t bytes = 0;
  struct Side {
    int64_t calls = 0;
    double seconds = 0;
  };
  Side a, b;
  double ratio() const;  ///< mean seconds a call, b / a; NaN when either has none
};

struct Alignment {
  bool any = false;     ///< both have a timeline
  int64_t aligned = 0;  ///< ops at equal places that are equal in name, group and bytes
  int64_t ops_a = 0, ops_b = 0;
  std::string first_mismatch;    ///< empty: every list is equal
  std::vector<OpClass> classes;  ///< by falling |seconds of b - seconds of a|
};
Alignment align(const OpLists& a, const OpLists& b);

}  // namespace moetwin
