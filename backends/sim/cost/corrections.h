#pragma once
// Factors on predicted times that a measured run asked for (`corrections` of a machine profile).

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace moetwin {

/// One entry of the profile.
struct CorrectionEntry {
  std::string op;     ///< an op's or a collective's name
  std::string group;  ///< of ranks; empty for an op on one device
  int64_t bytes = 0;  ///< of an op: read and written; of a collective: mean sent by a member
  double factor = 1;  ///< measured / predicted seconds
};

class Corrections {
 public:
  explicit Corrections(const std::vector<CorrectionEntry>& entries);
  bool empty() const { return by_op_.empty(); }
  /// Between two sizes the factor goes linearly with log(bytes + 1); beyond them it is that of the
  /// nearest. 1 for an op that no entry names.
  double factor(const std::string& op, const std::string& group, double bytes) const;

 private:
  /// By op and group: log of the size and factor, sizes ascending.
  std::map<std::string, std::map<double, double>> by_op_;
};

}  // namespace moetwin
