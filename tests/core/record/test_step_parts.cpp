#include <catch2/catch.hpp>

#include "core/record/step_parts.h"

using namespace moetwin;

namespace {

Interval work(double start, double end, Activity activity, Phase phase = Phase::forward,
              int32_t stream = 0, const char* group = "") {
  Interval interval;
  interval.start = start, interval.end = end;
  interval.activity = activity, interval.phase = phase;
  interval.stream = activity == Activity::host || activity == Activity::data ? -1 : stream;
  interval.group = group;
  return interval;
}

StepParts parts_of(std::vector<Interval> intervals, double start, double end,
                   bool pipeline = false) {
  return step_parts({std::move(intervals), {}}, start, end, pipeline);
}

}  // namespace

TEST_CASE("at each instant the first part that applies claims it, and the parts sum", "[P189]") {
  // 0    1    2    3    4    5    6    7    8    9    10
  // forward---|         backward--|    optimizer
  //      a2a-------|    a2a------------|
  //                          all_reduce---------|
  // host------------------------------------------|
  const StepParts p = parts_of(
      {work(0, 2, Activity::compute), work(4, 6, Activity::compute, Phase::backward),
       work(7, 8, Activity::compute, Phase::optimizer), work(1, 3, Activity::all_to_all),
       work(4, 7, Activity::all_to_all, Phase::backward, 1),
       work(5, 9, Activity::other_communication, Phase::backward, 2), work(0, 9.5, Activity::host)},
      0, 10);
  CHECK(p[Part::compute] == Approx(5));  // 0-2, 4-6, 7-8
  CHECK(p.forward == Approx(2));
  CHECK(p.backward == Approx(2));
  CHECK(p.optimizer == Approx(1));
  CHECK(p.recompute == 0);
  CHECK(p[Part::all_to_all] == Approx(2));           // 2-3, 6-7
  CHECK(p[Part::other_communication] == Approx(1));  // 8-9
  CHECK(p[Part::host] == Approx(1.5));               // 3-4, 9-9.5
  CHECK(p[Part::idle] == Approx(0.5));
  CHECK(p.all_to_all_hidden == Approx(3));           // 1-2, 4-6
  CHECK(p.other_communication_hidden == Approx(3));  // 5-6 and 7-8 under compute, 6-7 under a2a
  CHECK(p.total() == Approx(10));
}

TEST_CASE("waiting for a stage is a bubble: what comes next is its message") {
  // The gap 1-3 ends at a receive between stages, the gap 5-6 at arithmetic.
  const StepParts p = parts_of(
      {work(0, 1, Activity::compute),
       work(3, 4, Activity::other_communication, Phase::forward, 1, "pp"),
       work(4, 5, Activity::compute), work(6, 7, Activity::compute), work(0, 7, Activity::host)},
      0, 8);
  CHECK(p[Part::bubble] == Approx(2));
  CHECK(p[Part::host] == Approx(1));
  CHECK(p[Part::other_communication] == Approx(1));
  CHECK(p[Part::idle] == Approx(1));
  CHECK(p.total() == Approx(8));
}

TEST_CASE(
    "offload, data and idle come after what else runs; work outside of the step does not count") {
  const StepParts p =
      parts_of({work(-5, 1, Activity::compute, Phase::recompute), work(0, 3, Activity::offload),
                work(2, 5, Activity::data), work(8, 20, Activity::compute, Phase::other)},
               0, 10);
  CHECK(p[Part::compute] == Approx(3));
  CHECK(p.recompute == Approx(1));
  CHECK(p.compute_other == Approx(2));
  CHECK(p[Part::offload] == Approx(2));
  CHECK(p[Part::data] == Approx(2));
  CHECK(p[Part::idle] == Approx(3));
  CHECK(p.total() == Approx(10));
}

TEST_CASE("nothing at all is idle; streams that overlap count once") {
  CHECK(parts_of({}, 3, 7)[Part::idle] == Approx(4));
  const StepParts p = parts_of({work(0, 4, Activity::compute), work(1, 3, Activity::compute),
                                work(2, 6, Activity::compute, Phase::backward)},
                               0, 6);
  CHECK(p[Part::compute] == Approx(6));
  CHECK(p.forward == Approx(4));
  CHECK(p.backward == Approx(2));
}

TEST_CASE("parts are fitted to the step of the job") {
  StepParts p = parts_of({work(0, 2, Activity::compute), work(2, 3, Activity::host)}, 0, 4);
  p.fit(5);  // this rank was done a second early
  CHECK(p[Part::idle] == Approx(2));
  CHECK(p.total() == Approx(5));
  p.fit(2.5);  // began before the step: first idle goes, then host
  CHECK(p[Part::idle] == 0);
  CHECK(p[Part::host] == Approx(0.5));
  CHECK(p[Part::compute] == Approx(2));
}

TEST_CASE("waiting for other stages at the end of a step is bubble where there are stages") {
  // Compute until 4; the sum of tied gradients begins at 6, the norm at 8.
  for (const bool pipeline : {false, true}) {
    const StepParts p =
        parts_of({work(0, 4, Activity::compute),
                  work(6, 7, Activity::other_communication, Phase::backward, 1, "embedding"),
                  work(8, 9, Activity::other_communication, Phase::optimizer, 0, "world")},
                 0, 10, pipeline);
    CHECK(p[Part::bubble] == Approx(pipeline ? 3 : 0));  // 4-6, 7-8
    CHECK(p[Part::idle] == Approx(pipeline ? 1 : 4));    // 9-10 in any case
    CHECK(p[Part::other_communication] == Approx(2));
  }
}
