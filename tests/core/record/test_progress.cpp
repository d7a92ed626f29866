#include <catch2/catch.hpp>
#include <sstream>

#include "core/record/progress.h"

using namespace moetwin;
using Catch::Contains;

namespace {

StepRow row(int64_t step) {
  StepRow r;
  r.step = step;
  r.loss = 2.5;
  r.tokens = 4096;
  r.start = static_cast<double>(step), r.end = r.start + 0.004;
  r.layers.resize(1);
  r.routing.imbalance_experts = 1.25;
  r.routing.dropped_share = 0.031;
  return r;
}

}  // namespace

TEST_CASE("no terminal: a plain line per step, with the time still to go") {
  std::ostringstream out;
  double now = 10;
  Progress progress(101, out, false, [&] { return now; });
  progress.show(row(1));
  now = 12;
  progress.show(row(11));
  now = 30;
  progress.show(row(101));
  progress.finish();
  // 10 steps in 2 s: 90 more take 18 s. 4096 tokens in 4 ms are 1.024 million a second.
  CHECK(out.str() ==
        "step   1/101  loss 2.5000  1.02M tokens/s  step 4.00 ms  imbalance 1.25  dropped 3.1%\n"
        "step  11/101  loss 2.5000  1.02M tokens/s  step 4.00 ms  imbalance 1.25  dropped 3.1%"
        "  ETA 18 s\n"
        "step 101/101  loss 2.5000  1.02M tokens/s  step 4.00 ms  imbalance 1.25  dropped 3.1%\n");
}

TEST_CASE("a terminal: one line written over, not more than ten times a second, ended at the end") {
  std::ostringstream out;
  double now = 0;
  Progress progress(100, out, true, [&] { return now; });
  for (int64_t step = 1; step <= 100; ++step, now += 0.02) progress.show(row(step));
  progress.finish();
  const std::string text = out.str();
  const auto lines = std::count(text.begin(), text.end(), '\r');
  CHECK((lines >= 15 && lines <= 25));  // 2 s, the last step and the end
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
  CHECK(text.back() == '\n');
  CHECK_THAT(text, Contains("step 100/100"));
}

TEST_CASE("steps without a probe show the churn of the last one") {
  std::ostringstream out;
  Progress progress(100, out, false, [] { return 0.0; });
  StepRow probed = row(10);
  probed.churn = 0.125;
  progress.show(row(9));
  progress.show(probed);
  progress.show(row(11));
  std::string line;
  std::istringstream lines(out.str());
  std::getline(lines, line);
  CHECK_THAT(line, !Contains("churn"));
  for (int i = 0; i < 2; ++i) {
    std::getline(lines, line);
    CHECK_THAT(line, Contains("dropped 3.1%  churn 12.5%"));
  }
}

TEST_CASE("durations") {
  CHECK(duration_text(0.2) == "1 s");
  CHECK(duration_text(59.5) == "1 min 0 s");
  CHECK(duration_text(200) == "3 min 20 s");
  CHECK(duration_text(7500) == "2 h 5 min");
  CHECK(duration_text(100000) == "1 d 3 h");
}

TEST_CASE("a long first step says in advance how long all of them take", "[P223]") {
  std::ostringstream out;
  double now = 0;
  Progress progress(4, out, false, [&] { return now; });
  const auto within = [&](double at, double share) {
    now = at;
    progress.within_first(share);
  };
  within(9, 0.2);     // not yet
  within(10, 0.25);   // 40 s a step: 160 - 10
  within(19, 0.4);    // not yet twice that time
  within(20.5, 0.5);  // 41 s a step: 164 - 20.5
  within(41, 1.7);    // the estimate was too low: 99% at most
  progress.show(row(1));
  within(400, 0.9);  // the first step is over
  CHECK(out.str() ==
        "step 1/4  25% of it  ETA 2 min 30 s\n"
        "step 1/4  50% of it  ETA 2 min 24 s\n"
        "step 1/4  99% of it  ETA 2 min 5 s\n"
        "step 1/4  loss 2.5000  1.02M tokens/s  step 4.00 ms  imbalance 1.25  dropped 3.1%\n");
}

TEST_CASE("a terminal shows the share of the first step on the line of the steps") {
  std::ostringstream out;
  double now = 0.5;
  Progress progress(2, out, true, [&] { return now; });
  progress.within_first(0.1);
  CHECK(out.str().empty());
  now = 2;
  progress.within_first(0.5);
  CHECK_THAT(out.str(), Contains("step 1/2  50% of it  ETA 6 s") && Contains("\r"));
  progress.show(row(1));
  progress.finish();
  const std::string text = out.str();
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
}
