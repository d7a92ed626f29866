#pragma once
// When a stream's kernels ran, as far back as a collective that has not ended may have begun: what
// of them ran beside it is known only then.

#include <algorithm>
#include <cstdint>

#include "backends/sim/cost/beside.h"
#include "backends/sim/runtime/item_queue.h"

namespace moetwin {

class BusyLog {
 public:
  /// `products`: share of the time that is of matrix products and attention.
  void add(double start, double end, float products) {
    if (busy_.size() >= kMost) busy_.pop_front();
    busy_.push_back({start, end, products});
  }
  /// Nothing that begins from now on can be beside what ended before `time`.
  void forget(double time) {
    while (!busy_.empty() && busy_.front().end <= time) busy_.pop_front();
  }
  /// Seconds by which kernels end later that are beside a collective in [start, end).
  double lost(double start, double end, const Beside& beside) const {
    double late = 0;
    // Ends ascend: what ended before has no part in it.
    size_t first = 0;
    for (size_t beyond = busy_.size(); first < beyond;) {
      const size_t middle = (first + beyond) / 2;
      if (busy_.at(middle).end <= start)
        first = middle + 1;
      else
        beyond = middle;
    }
    for (size_t i = first; i < busy_.size(); ++i) {
      const Busy& b = busy_.at(i);
      const double from = std::max(start, b.start), left = end - (from + late);
      if (left <= 0) break;
      if (b.end <= from) continue;
      const double more = beside.of(b.products);
      late += more * std::min(b.end - from, left / (1 + more));
    }
    return late;
  }

 private:
  static constexpr size_t kMost = 4096;
  struct Busy {
    double start, end;
    float products;
  };
  ItemQueue<Busy> busy_;
};

}  // namespace moetwin
