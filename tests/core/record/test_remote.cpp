// What ranks hand in comes through as bytes, whole.
#include <catch2/catch.hpp>
#include <cstring>

#include "core/base/error.h"
#include "core/record/remote.h"

using namespace moetwin;

namespace {

struct Kept : RunSink {
  bool wants_detail(int64_t) const override { return false; }
  void add(RankStep step) override { steps.push_back(std::move(step)); }
  void add_validation(int64_t rank, int64_t step, double ce_sum, int64_t tokens) override {
    validations.push_back({static_cast<double>(rank), static_cast<double>(step), ce_sum,
                           static_cast<double>(tokens)});
  }
  std::vector<RankStep> steps;
  std::vector<std::vector<double>> validations;
};

RankStep full_step() {
  RankStep s;
  s.rank = 3, s.step = 17, s.start = 1.25, s.end = 2.5, s.ce_sum = 7.5, s.valid_tokens = 96;
  ProbePart probe;
  probe.sequences = {{4, 6, {2, 4}, 1, 3.5, 0.75}, {5, 6, {6, 0}, -1, 2.5, 1.75}};
  probe.weighed = 90, probe.harmed = 30, probe.bias = {-0.5, 0.5};
  LayerStep l;
  l.layer = 1, l.tokens = 48, l.counts = {40, 56}, l.probability = {0.25, 0.75};
  l.aux = 1.5, l.z = 2, l.importance = 0.125, l.load_variance = 4, l.probe = probe;
  s.layers.push_back(l);
  l.layer = 3, l.kept = {40, 50}, l.probe.reset();
  s.layers.push_back(l);
  Interval i;
  i.start = 1, i.end = 2, i.activity = Activity::all_to_all, i.phase = Phase::backward;
  i.stream = 2, i.name = "all_to_all_v", i.group = "ep", i.bytes = 512, i.order = 9;
  s.profile.intervals = {i, Interval{}};
  s.profile.traffic.push_back({"all_to_all_v", "dispatch", "ep", "pxn", 8, 4, 2048, 1024, 0.5});
  s.memory.bytes[2] = 5, s.memory.bytes_at_peak[7] = 6, s.memory.peak = 11;
  s.host_syncs = 2, s.grad_norm = 0.5, s.learning_rate = 1e-3, s.loss_scale = 8, s.skipped = true;
  return s;
}

}  // namespace

TEST_CASE("a step comes through whole") {
  Kept kept;
  RemoteReceiver receiver(kept);
  RemoteSink sink(Scenario{}, [&](const std::string& bytes) { receiver.receive(bytes); });
  sink.add(full_step());
  sink.add_validation(2, 5, 1.5, 64);
  REQUIRE(kept.steps.size() == 1);
  const RankStep s = kept.steps[0], wanted = full_step();
  CHECK(s.rank == 3);
  CHECK(s.step == 17);
  CHECK(s.start == 1.25);
  CHECK(s.end == 2.5);
  CHECK(s.ce_sum == 7.5);
  CHECK(s.valid_tokens == 96);
  REQUIRE(s.layers.size() == 2);
  for (size_t n = 0; n < 2; ++n) {
    const LayerStep &a = s.layers[n], &b = wanted.layers[n];
    CHECK(a.layer == b.layer);
    CHECK(a.tokens == b.tokens);
    CHECK(a.counts == b.counts);
    CHECK(a.kept == b.kept);
    CHECK(a.probability == b.probability);
    CHECK(a.aux == b.aux);
    CHECK(a.z == b.z);
    CHECK(a.importance == b.importance);
    CHECK(a.load_variance == b.load_variance);
    CHECK(a.probe.has_value() == (n == 0));
  }
  const ProbePart& probe = s.layers[0].probe.value();
  REQUIRE(probe.sequences.size() == 2);
  CHECK(probe.sequences[0].sequence == 4);
  CHECK(probe.sequences[0].tokens == 6);
  CHECK(probe.sequences[0].first == std::vector<int64_t>{2, 4});
  CHECK(probe.sequences[0].changed == 1);
  CHECK(probe.sequences[0].entropy == 3.5);
  CHECK(probe.sequences[0].variance == 0.75);
  CHECK(probe.sequences[1].sequence == 5);
  CHECK(probe.sequences[1].changed == -1);
  CHECK(probe.weighed == 90);
  CHECK(probe.harmed == 30);
  CHECK(probe.bias == std::vector<double>{-0.5, 0.5});
  REQUIRE(s.profile.intervals.size() == 2);
  const Interval& i = s.profile.intervals[0];
  CHECK(i.start == 1);
  CHECK(i.end == 2);
  CHECK(i.activity == Activity::all_to_all);
  CHECK(i.phase == Phase::backward);
  CHECK(i.stream == 2);
  CHECK(std::string(i.name) == "all_to_all_v");
  CHECK(std::string(i.group) == "ep");
  CHECK(i.bytes == 512);
  CHECK(i.order == 9);
  REQUIRE(s.profile.traffic.size() == 1);
  CHECK(s.profile.traffic[0].purpose == "dispatch");
  CHECK(s.profile.traffic[0].algorithm == "pxn");
  CHECK(s.profile.traffic[0].members == 8);
  CHECK(s.profile.traffic[0].seconds == 0.5);
  CHECK(s.profile.traffic[0].bytes_off_node == 1024);
  CHECK(s.memory.bytes[2] == 5);
  CHECK(s.memory.bytes_at_peak[7] == 6);
  CHECK(s.memory.peak == 11);
  CHECK(s.host_syncs == 2);
  CHECK(s.grad_norm == 0.5);
  CHECK(s.learning_rate == 1e-3);
  CHECK(s.loss_scale == 8);
  CHECK(s.skipped);
  CHECK(kept.validations == std::vector<std::vector<double>>{{2, 5, 1.5, 64}});
}

TEST_CASE("bytes that are cut short are refused") {
  Kept kept;
  RemoteReceiver receiver(kept);
  std::string whole;
  RemoteSink(Scenario{}, [&](const std::string& bytes) { whole = bytes; }).add(full_step());
  for (size_t length = 0; length < whole.size(); length += 13)
    CHECK_THROWS_AS(receiver.receive(whole.substr(0, length)), Error);
  CHECK(kept.steps.empty());
}

TEST_CASE("the timeline's steps are known without a record") {
  Scenario s;
  s.training_config.steps = 9;
  CHECK(RemoteSink(s, nullptr).wants_detail(9));
  CHECK_FALSE(RemoteSink(s, nullptr).wants_detail(8));
  s.output.timeline_steps = {2, 4};
  CHECK(RemoteSink(s, nullptr).wants_detail(4));
  CHECK_FALSE(RemoteSink(s, nullptr).wants_detail(9));
}
