#pragma once
// Runs side by side: figures, what differs in the scenarios, op lists, and whether a difference is
// more than noise.

#include <json/value.h>

#include <string>
#include <vector>

#include "analysis/compare/figures.h"
#include "analysis/compare/noise.h"
#include "analysis/compare/op_list.h"
#include "analysis/result/run.h"

namespace moetwin {

enum class Standing {
  equal,       ///< the same in every common step
  within,      ///< no more than noise
  beyond,      ///< more than noise
  one_value,   ///< one value each: how far noise moves it is unknown
  not_judged,  ///< too few steps, or another seed
};
const char* standing_name(Standing standing);

/// One figure of the first run against one other.
struct Difference {
  Figure a, b;
  Standing standing = Standing::not_judged;
  std::string why;                  ///< of one_value and not_judged
  double absolute = 0;              ///< b - a, of the common steps where there are any
  double relative = 0;              ///< absolute / |a|; NaN where a is 0
  double low = 0, high = 0, p = 1;  ///< of the relative difference: 95% interval
  NoiseTest test;
};

struct KeyDifference {
  std::string key, a, b;
};

struct PairComparison {
  std::vector<Difference> differences;
  std::vector<KeyDifference> scenario;
  bool scenario_known = false;
  Alignment ops;
  bool identical = false;  ///< every figure equal, op lists too
  std::string headline;    ///< one sentence
};

struct Comparison {
  std::vector<Run> runs;              ///< at least two
  std::vector<PairComparison> pairs;  ///< the first against each of the others
};

Comparison compare(std::vector<Run> runs);

/// Whether a judged figure differs beyond noise by more than `tolerance` (relative) or, when
/// `strict`, a figure of one value differs by more.
bool beyond_tolerance(const PairComparison& pair, double tolerance, bool strict);

/// Keys of the settings with other values; `seed` and all.
std::vector<KeyDifference> setting_differences(const Json::Value& a, const Json::Value& b);

}  // namespace moetwin
