#pragma once
// Adds up bytes per port while a plan is made.

#include <unordered_map>
#include <vector>

#include "backends/sim/collective/plan.h"

namespace moetwin {

class PortSums {
 public:
  void add(int64_t port, double bytes) {
    if (bytes <= 0) return;
    const auto [it, added] = index_.emplace(port, ports_.size());
    if (added)
      ports_.push_back({port, bytes});
    else
      ports_[it->second].bytes += bytes;
  }
  std::vector<PortBytes> take() { return std::move(ports_); }

 private:
  std::unordered_map<int64_t, size_t> index_;
  std::vector<PortBytes> ports_;
};

}  // namespace moetwin
