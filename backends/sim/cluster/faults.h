#pragma once
// What is slower than it should be, or away, for a while: a profile's list `faults`.

#include <cmath>
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
  /// Above 0: it comes again and again between `from` and `to`, after gaps of this mean (drawn from
  /// an exponential distribution), for `lasting` seconds each, at `rank` or, where that is -1, at
  /// every GPU, NVLink or NIC by itself.
  double mean_between = 0, lasting = 0;
  int64_t seed = 1;

  bool drawn() const { return mean_between > 0; }
  /// A NIC that does not come back: what would pass it takes the others of its node.
  bool lost_for_good() const { return what == What::nic && left == 0 && std::isinf(to); }
};
/// "nic of rank 3 at 0.25 from 1 s to 2 s", "every gpu at 0.8 for 0.1 s about every 30 s".
std::string fault_text(const Fault& fault);

/// A list of {"what": "gpu" | "nvlink" | "nic", "rank", "left", "from_seconds", "to_seconds",
/// "mean_seconds_between", "for_seconds", "seed"}.
std::vector<Fault> read_faults(Figures& in);

/// The faults that a drawn one stands for at unit number `unit` (of which rank `rank` is), in order
/// of time: the same for the same fault and unit, whatever else there is.
std::vector<Fault> draw_faults(const Fault& fault, int64_t unit, int64_t rank);

/// From `time` on a rate is `share` of what it was without faults.
struct RateChange {
  double time = 0, share = 1;
};
/// The product of what all faults leave, in order of time; empty: there are none.
std::vector<RateChange> rate_changes(const std::vector<Fault>& faults);

}  // namespace moetwin
