// The lists of actions alone: complete, in order, never stuck under the rules of the exchange
// between stages, with the bubble and the memory that the papers give.

#include <catch2/catch.hpp>
#include <set>

#include "core/base/philox.h"
#include "tests/core/parallel/pipeline_run.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

struct Case {
  std::string schedule;
  int64_t p, m, v;
  bool paired = false;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.schedule << " p=" << c.p << " m=" << c.m << " v=" << c.v
             << (c.paired ? " paired" : "");
}

/// 400 draws of every schedule with up to 8 stages, 20 micro-batches and 4 chunks; those of 1F1B
/// paired too.
std::vector<Case> random_cases() {
  std::vector<Case> cases;
  const PhiloxKey key = philox_key(3, Purpose::data, 0, 0);
  uint64_t draw = 0;
  const auto below = [&](uint32_t n) { return static_cast<int64_t>(philox_below(key, draw++, n)); };
  for (int i = 0; i < 400; ++i)
    for (const char* schedule : {"gpipe", "1f1b", "zb_h1", "interleaved_1f1b"}) {
      Case c{schedule, 1 + below(8), 1 + below(20), 1};
      if (c.schedule == "interleaved_1f1b") {
        c.p = 2 + below(7);
        c.v = 2 + below(3);
        c.m = c.p * (1 + below(5));
      }
      cases.push_back(c);
      c.paired = true;
      if (c.schedule == "1f1b" || c.schedule == "interleaved_1f1b") cases.push_back(c);
    }
  return cases;
}

}  // namespace

TEST_CASE("every micro-batch goes forward and back once in each chunk, in ascending order") {
  for (const Case& c : random_cases())
    for (int64_t stage = 0; stage < c.p; ++stage) {
      CAPTURE(c, stage);
      std::vector<int64_t> forward(static_cast<size_t>(c.v)), input = forward, weight = forward;
      for (const PipelineAction& a :
           pipeline_actions(c.schedule, {c.p, stage, c.m, c.v, c.paired})) {
        const auto chunk = static_cast<size_t>(a.chunk);
        REQUIRE(chunk < forward.size());
        if (a.work == PipelineWork::forward) {
          REQUIRE(a.micro_batch == forward[chunk]++);
          continue;
        }
        if (a.work != PipelineWork::backward_weight) {
          REQUIRE(a.micro_batch == input[chunk]++);
          REQUIRE(a.micro_batch < forward[chunk]);
          // Gradients of a chunk come from the chunk after it.
          if (chunk + 1 < forward.size()) REQUIRE(a.micro_batch < input[chunk + 1]);
        }
        if (a.work != PipelineWork::backward_input) {
          REQUIRE(a.micro_batch == weight[chunk]++);
          REQUIRE(a.micro_batch < input[chunk]);
        }
      }
      for (const auto& done : {forward, input, weight})
        for (const int64_t n : done) REQUIRE(n == c.m);
    }
}

TEST_CASE("no schedule gets stuck, whatever work and transfers take", "[P035]") {
  for (const Case& c : random_cases())
    for (const WorkTimes& times :
         {WorkTimes{1, 1, 1, 0}, WorkTimes{1, 2, 0.5, 0.3}, WorkTimes{0.1, 1, 3, 5}}) {
      const PipelineRun run = play(c.schedule, c.p, c.m, c.v, times, c.paired);
      CAPTURE(c, times.transfer, run.stuck);
      REQUIRE(run.stuck.empty());
    }
}

TEST_CASE("bubbles are those of the papers") {
  for (const Case& c : random_cases()) {
    CAPTURE(c);
    const auto p = static_cast<double>(c.p), m = static_cast<double>(c.m),
               v = static_cast<double>(c.v);
    // The last stage has work for m micro-batches; all else is bubble.
    const WorkTimes times{1, 1.25, 0.75, 0};
    const double work = m * 3,
                 bubble = play(c.schedule, c.p, c.m, c.v, times, c.paired).seconds - work;
    if (c.paired) {
      // As without pairs where a pair hides nothing: results wait for their pairs to end, but as
      // many more are on their way. The last micro-batches find no partners.
      if (c.schedule == "1f1b" && c.m >= 2 * c.p) CHECK(bubble == Approx((p - 1) * 3));
      continue;
    }
    if (c.schedule == "gpipe" || c.schedule == "1f1b")
      CHECK(bubble == Approx((p - 1) * 3));  // (p - 1) / m of the work
    if (c.schedule == "interleaved_1f1b") CHECK(bubble == Approx((p - 1) * 3 / v));
    // With equal parts and enough micro-batches to fill the pipeline: (p - 1)(F + B - W).
    if (c.schedule == "zb_h1" && c.m >= 2 * c.p)
      CHECK(play("zb_h1", c.p, c.m, 1, {1, 1, 1, 0}).seconds - work == Approx(p - 1));
  }
  // Half of 1F1B's with v = 2, a third of it by splitting the backward: 4 stages, 8 micro-batches.
  CHECK(play("1f1b", 4, 8, 1, {1, 1, 1, 0}).seconds == Approx(24 + 9));
  CHECK(play("interleaved_1f1b", 4, 8, 2, {1, 1, 1, 0}).seconds == Approx(24 + 4.5));
  CHECK(play("zb_h1", 4, 8, 1, {1, 1, 1, 0}).seconds == Approx(24 + 3));
}

TEST_CASE("micro-batches in flight stay below the schedules' bounds") {
  for (const Case& c : random_cases()) {
    const PipelineRun run = play(c.schedule, c.p, c.m, c.v, {}, c.paired);
    for (int64_t stage = 0; stage < c.p; ++stage) {
      CAPTURE(c, stage);
      const int64_t kept = run.in_flight[static_cast<size_t>(stage)];
      if (c.paired && c.schedule == "1f1b")
        CHECK(kept == std::min(c.m, 2 * (c.p - stage)));
      else if (c.paired)
        CHECK(kept == std::min(c.m * c.v, 2 * (c.p - 1 - stage) + (c.v - 1) * c.p + 2));
      else if (c.p == 1)
        CHECK(kept == 1);
      else if (c.schedule == "gpipe")
        CHECK(kept == c.m);
      else if (c.schedule == "1f1b")
        CHECK(kept == std::min(c.m, c.p - stage));
      else if (c.schedule == "zb_h1")
        CHECK(kept == std::min(c.m, c.p));
      else  // in chunks, each 1 / v of a stage's layers
        CHECK(kept == std::min(c.m * c.v, 2 * (c.p - 1 - stage) + (c.v - 1) * c.p + 1));
    }
  }
}

TEST_CASE("members of a pair are of different micro-batches or chunks, a forward and a backward") {
  for (const Case& c : random_cases()) {
    if (!c.paired) continue;
    for (int64_t stage = 0; stage < c.p; ++stage) {
      CAPTURE(c, stage);
      const auto actions = pipeline_actions(c.schedule, {c.p, stage, c.m, c.v, true});
      int64_t pairs = 0;
      for (size_t i = 0; i < actions.size(); ++i) {
        if (!actions[i].beside_next) continue;
        ++pairs;
        REQUIRE(i + 1 < actions.size());
        const PipelineAction &a = actions[i], &b = actions[i + 1];
        REQUIRE(a.work == PipelineWork::forward);
        REQUIRE(b.work == PipelineWork::backward);
        REQUIRE_FALSE(b.beside_next);
        REQUIRE((a.micro_batch != b.micro_batch || a.chunk != b.chunk));
      }
      if (c.p == 1) REQUIRE(pairs == c.m - 1);
    }
  }
}

TEST_CASE("the lists of a small pipeline, as in the papers' figures") {
  const auto text = [](const char* schedule, int64_t stages, int64_t stage, int64_t m, int64_t v,
                       bool paired = false) {
    std::string line;
    for (const PipelineAction& a : pipeline_actions(schedule, {stages, stage, m, v, paired})) {
      line += a.work == PipelineWork::forward          ? 'F'
              : a.work == PipelineWork::backward       ? 'B'
              : a.work == PipelineWork::backward_input ? 'I'
                                                       : 'W';
      line += std::to_string(a.micro_batch);
      if (v > 1) line += std::string(1, static_cast<char>('a' + a.chunk));
      line += a.beside_next ? '&' : ' ';
    }
    return line;
  };
  CHECK(text("gpipe", 2, 0, 3, 1) == "F0 F1 F2 B0 B1 B2 ");
  CHECK(text("1f1b", 3, 0, 4, 1) == "F0 F1 F2 B0 F3 B1 B2 B3 ");
  CHECK(text("1f1b", 3, 2, 3, 1) == "F0 B0 F1 B1 F2 B2 ");
  CHECK(text("1f1b", 1, 0, 3, 1, true) == "F0 F1&B0 F2&B1 B2 ");
  CHECK(text("1f1b", 2, 0, 4, 1, true) == "F0 F1 F2 F3&B0 B1 B2 B3 ");
  CHECK(text("1f1b", 2, 1, 4, 1, true) == "F0 F1&B0 F2&B1 F3&B2 B3 ");
  CHECK(text("interleaved_1f1b", 2, 1, 2, 2, true) == "F0a F1a F0b F1b&B0b B1b B0a B1a ");
  CHECK(text("interleaved_1f1b", 2, 1, 2, 2) == "F0a F1a F0b B0b F1b B1b B0a B1a ");
  CHECK(text("zb_h1", 3, 0, 4, 1) == "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3 ");
  CHECK(text("zb_h1", 3, 2, 4, 1) == "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3 ");
  // Evaluation: two stages with two chunks, three micro-batches.
  std::string line;
  for (const PipelineAction& a : forward_actions({2, 0, 3, 2}))
    line += std::to_string(a.micro_batch) + static_cast<char>('a' + a.chunk) + ' ';
  CHECK(line == "0a 1a 0b 1b 2a 2b ");
}
