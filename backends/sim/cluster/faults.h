#pragma once
// What is slower than it should be, or away, for a while: a profile's list `faults`.

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace moetwin {

class Figures;

struct Fault {
  enum class What : uint8_t { gpu, nvlink, nic };
  What what = What::gpu;
  int64_t rank = 0;  ///< whose: a GPU's kernels, both directions of its link or of the NIC it uses
  double left = 1;   ///< share of the rate that is left; 0: lost (links only)
  double from = 0, to = std::numeric_limits<double>::infinity();  ///< seconds of the run
};
/// "nic of rank 3 at 0.25 from 1 s to 2 s".
std::string fault_text(const Fault& fault);

/// A list of {"what": "gpu" | "nvlink" | "nic", "rank", "left", "from_seconds", "to_seconds"}.
std::vector<Fault> read_faults(Figures& in);

/// From `time` on a rate is `share` of what it was without faults.
struct RateChange {
  double time = 0, share = 1;
};
/// The product of what all faults leave, in order of time; empty: there are none.
std::vector<RateChange> rate_changes(const std::vector<Fault>& faults);

}  // namespace moetwin
