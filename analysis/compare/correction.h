#pragma once
// What a measured run says of the profile that predicted it: per op, group and size the factor on
// the predicted time, as `corrections` of a machine profile that the modelled cluster loads.

#include <json/value.h>

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/compare/op_list.h"

namespace moetwin {

struct Correction {
  std::string op, group;  ///< group of ranks; empty for an op on one device
  int64_t bytes = 0;      ///< as the timeline has them; of a collective the mean over ranks
  int64_t calls = 0;      ///< of one rank, in the measured run
  double predicted = 0, measured = 0;  ///< seconds of all of them
  double factor() const { return measured / predicted; }
};

/// Classes of ops that both lists have, in order of op, group and bytes. A collective's time begins
/// when its last member arrives: that of the call is the shortest over ranks.
std::vector<Correction> corrections(const OpLists& predicted, const OpLists& measured);

/// The profile with these corrections in place of those for the same ops that it had, whose factors
/// the prediction contained and which are multiplied in. `source`: where the factors are from.
Json::Value corrected_profile(Json::Value profile, const std::vector<Correction>& corrections,
                              const std::string& source);

}  // namespace moetwin
