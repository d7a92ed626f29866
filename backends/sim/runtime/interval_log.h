#pragma once
// The intervals of one stream or of the host, in the order of time. Without detail, stretches that
// touch and are of one kind become one, without a name.

#include <vector>

#include "core/device/profile.h"

namespace moetwin {

class IntervalLog {
 public:
  void add(const Interval& interval, bool detailed) {
    if (!detailed && !intervals_.empty()) {
      Interval& last = intervals_.back();
      if (last.end == interval.start && last.activity == interval.activity &&
          last.phase == interval.phase && last.group == interval.group && last.name[0] == '\0') {
        last.end = interval.end;
        last.bytes += interval.bytes;
        return;
      }
    }
    intervals_.push_back(interval);
    if (!detailed) intervals_.back().name = "";
  }
  void take(std::vector<Interval>& into) {
    into.insert(into.end(), intervals_.begin(), intervals_.end());
    intervals_.clear();
  }

 private:
  std::vector<Interval> intervals_;
};

}  // namespace moetwin
