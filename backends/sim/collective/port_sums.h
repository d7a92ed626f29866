#pragma once
// Adds up bytes per port while a plan is made.

#include <algorithm>
#include <vector>

#include "backends/sim/collective/plan.h"

namespace moetwin {

class PortSums {
 public:
  explicit PortSums(std::vector<PortBytes>& ports) : ports_(ports) { ports_.clear(); }
  void add(int64_t port, double bytes) {
    if (bytes > 0) ports_.push_back({port, bytes});
  }
  /// Every port once, in order.
  void finish() {
    const auto before = [](const PortBytes& a, const PortBytes& b) { return a.port < b.port; };
    if (!std::is_sorted(ports_.begin(), ports_.end(), before))
      std::stable_sort(ports_.begin(), ports_.end(), before);
    size_t kept = 0;
    for (size_t i = 0; i < ports_.size(); ++i)
      if (kept > 0 && ports_[kept - 1].port == ports_[i].port)
        ports_[kept - 1].bytes += ports_[i].bytes;
      else
        ports_[kept++] = ports_[i];
    ports_.resize(kept);
  }

 private:
  std::vector<PortBytes>& ports_;
};

}  // namespace moetwin
