#pragma once
// Published measurements against what the model says of them.

#include <json/value.h>

#include <string>
#include <vector>

#include "analysis/validate/batch.h"
#include "analysis/validate/score.h"

namespace moetwin {

struct ValidateOptions {
  /// A directory with the tables, or one table.
  std::string data;
  std::vector<std::string> kinds;  ///< of kind.h; empty: all whose table is there
  int64_t sample = 0;              ///< at most so many rows of a series, evenly spaced; 0: all
  std::string series;              ///< only series whose name begins with this
  BatchOptions batches;
};

struct KindResult {
  std::string name, file_stem, what;
  std::vector<RowResult> rows;
  KindScore score;
};

/// Throws Error(configuration): unknown kind, no table, a table that cannot be read.
std::vector<KindResult> validate(const ValidateOptions& options, const MakeCluster& make);

/// As semantics 9 says.
Json::Value validation_json(const std::vector<KindResult>& kinds);
/// For a terminal: every kind with its series, worst rows and what was left out.
std::string validation_text(const std::vector<KindResult>& kinds);

}  // namespace moetwin
