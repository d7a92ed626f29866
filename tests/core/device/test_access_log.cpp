#include <catch2/catch.hpp>

#include "core/device/access_log.h"

using namespace moetwin;

namespace {
VectorClock clock_of(std::initializer_list<int64_t> counts) {
  VectorClock clock;
  int32_t stream = 0;
  for (int64_t count : counts) {
    for (int64_t i = 0; i < count; ++i) clock.advance(stream);
    ++stream;
  }
  return clock;
}
}  // namespace

TEST_CASE("vector clocks count, join and compare") {
  VectorClock a = clock_of({2, 0, 1});
  const VectorClock b = clock_of({1, 3});
  CHECK(a[0] == 2);
  CHECK(a[7] == 0);
  CHECK_FALSE(a.within(b));
  a.join(b);
  CHECK(a[0] == 2);
  CHECK(a[1] == 3);
  CHECK(a[2] == 1);
  CHECK(b.within(a));
}

TEST_CASE("stretches are cut where uses overlap") {
  AccessLog log;
  const VectorClock nothing;
  log.note({1, 0, 100}, {0, 1, "a", "t", true});
  log.note({1, 40, 60}, {1, 1, "b", "t", true});
  log.note({1, 90, 120}, {2, 1, "c", "t", false});
  const auto op = [&](const ByteRange& range, bool writes, const VectorClock& clock) {
    const MemoryAccess* found = log.conflict(range, writes, clock);
    return std::string(found ? found->op : "");
  };
  CHECK(op({1, 0, 40}, false, nothing) == "a");
  CHECK(op({1, 40, 60}, false, nothing) == "b");
  CHECK(op({1, 60, 61}, false, nothing) == "a");
  CHECK(op({1, 100, 120}, false, nothing).empty());  // only read so far
  CHECK(op({1, 100, 120}, true, nothing) == "c");
  CHECK(op({1, 90, 100}, true, clock_of({1})) == "c");
  CHECK(op({1, 90, 100}, true, clock_of({1, 0, 1})).empty());
  CHECK(op({1, 59, 61}, false, clock_of({1})) == "b");
  CHECK(op({1, 120, 200}, true, nothing).empty());
  CHECK(op({2, 0, 100}, true, nothing).empty());
  CHECK(op({1, 50, 50}, true, nothing).empty());  // no bytes
  log.forget(1);
  CHECK(op({1, 0, 120}, true, nothing).empty());
}

TEST_CASE("a reader is kept once per stream, with its latest use") {
  AccessLog log;
  log.note({1, 0, 10}, {0, 1, "first", "t", false});
  log.note({1, 0, 10}, {0, 2, "second", "t", false});
  CHECK(std::string(log.conflict({1, 5, 6}, true, clock_of({1}))->op) == "second");
  CHECK(log.conflict({1, 5, 6}, true, clock_of({2})) == nullptr);
}
