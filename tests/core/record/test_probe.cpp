#include <catch2/catch.hpp>
#include <cmath>

#include "core/record/probe.h"

using namespace moetwin;

namespace {

ProbePart part(std::vector<ProbeSequence> sequences) {
  ProbePart p;
  p.sequences = std::move(sequences);
  return p;
}

}  // namespace

TEST_CASE("a probe over ranks: shares, churn, entropy, logits, harm") {
  // Two ranks, three sequences of 4 tokens, two experts.
  ProbePart first = part({{0, 4, {3, 1}, 1, 4 * std::log(2.0), 1.0}, {2, 4, {0, 4}, 0, 0, 8.0}});
  ProbePart second = part({{1, 4, {2, 2}, 2, 2 * std::log(2.0), 3.0}});
  first.weighed = 10, first.harmed = 4, first.bias = {0.5, -0.5};
  second.weighed = 14, second.harmed = 8, second.bias = {0.5, -0.5};
  ProbeMerge merge;
  CHECK(merge.empty());
  merge.add(second), merge.add(first);
  const ProbeRow row = merge.row();
  CHECK(row.share == std::vector<double>{5 / 12., 7 / 12.});
  CHECK(row.churn == 3 / 12.);
  CHECK(row.router_entropy == Approx(6 / 12.));  // 6 ln 2 over 12 tokens, of ln 2
  CHECK(row.logit_std == 1);                     // sqrt((1 + 3 + 8) / 12)
  CHECK(row.harm == 12 / 24.);
  CHECK(row.bias == std::vector<double>{0.5, -0.5});
}

TEST_CASE("the sum does not depend on which rank had which sequence") {
  // In ascending order 0.1 + 0.2 + 0.3 is 0.6000000000000001, in descending order 0.6.
  const ProbeSequence a{0, 1, {1, 0}, 0, 0.1, 0.1}, b{1, 1, {1, 0}, 0, 0.2, 0.2},
      c{2, 1, {1, 0}, 0, 0.3, 0.3};
  ProbeMerge one, three;
  one.add(part({a, b, c}));
  for (const ProbeSequence& s : {c, b, a}) three.add(part({s}));
  CHECK(one.row().router_entropy == three.row().router_entropy);
  CHECK(one.row().logit_std == three.row().logit_std);
}

TEST_CASE("the first probe has no churn, an unrouted batch no harm") {
  ProbeMerge merge;
  merge.add(part({{0, 2, {2, 0}, -1, 0, 0}}));
  merge.add(part({}));  // a rank without sequences
  CHECK(std::isnan(merge.row().churn));
  CHECK(std::isnan(merge.row().harm));
}

TEST_CASE("rows of probe.csv") {
  CHECK(probe_csv_header(2, false) ==
        "step,layer,churn,router_entropy,logit_std,harm,share_0,share_1\n");
  CHECK(probe_csv_header(2, true) ==
        "step,layer,churn,router_entropy,logit_std,harm,share_0,share_1,bias_0,bias_1\n");
  ProbeRow row{{0.25, 0.75}, 0.125, 0.5, 2, 0.375, {}};
  CHECK(probe_csv_line(7, 1, row) == "7,1,0.125,0.5,2,0.375,0.25,0.75\n");
  row.churn = row.harm = NAN;
  row.bias = {0.5, -0.5};
  CHECK(probe_csv_line(1, 3, row) == "1,3,,0.5,2,,0.25,0.75,0.5,-0.5\n");
}
