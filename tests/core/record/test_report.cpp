#include <json/reader.h>

#include <catch2/catch.hpp>
#include <sstream>

#include "core/record/json_text.h"
#include "core/record/summary.h"
#include "core/scenario/model_size.h"
#include "tests/core/record/recorded_run.h"
#include "tests/support/temporary_directory.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Contains;

TEST_CASE("throughput is of the steps that were done, without the warm-up, which is counted",
          "[P229]") {
  const TemporaryDirectory dir;
  MadeUp made;  // 10 steps asked, 2 of warm-up, 4 sequences of 64 tokens a step
  Recorder recorder(made.scenario, made.grid(), made.info(dir.path()));
  for (int64_t s = 1; s <= 3; ++s)
    for (int64_t r = 0; r < 4; ++r) {
      RankStep step = made.step(r, s);
      step.start = s == 1 ? 0 : s == 2 ? 100 : 110;  // 100 s, 10 s, 2 s
      step.end = s == 1 ? 100 : s == 2 ? 110 : 112;
      recorder.add(step);
    }
  const Report report = recorder.finish({});
  CHECK(report.steps_asked == 10);
  CHECK(report.steps_done == 3);
  CHECK(report.steps_measured == 1);
  CHECK(report.tokens_per_second == Approx(128));  // 256 tokens in 2 s
  CHECK(report.samples_per_second == Approx(2));
  CHECK(report.device_seconds == Approx(112));
}

TEST_CASE("time between steps that is not training does not count") {
  MadeUp made;
  made.scenario.training_config.warmup_steps_excluded = 0;
  Recorder recorder(made.scenario, made.grid(), made.info(""));
  for (int64_t s = 1; s <= 2; ++s)
    for (int64_t r = 0; r < 4; ++r) {
      RankStep step = made.step(r, s);
      if (s == 2) step.start = 51, step.end = 52;  // 50 s of validation before
      recorder.add(step);
    }
  CHECK(recorder.finish({}).tokens_per_second == Approx(256));
}

TEST_CASE("the parts are those of the step with the median duration") {
  MadeUp made;
  made.scenario.training_config.warmup_steps_excluded = 1;
  Recorder recorder(made.scenario, made.grid(), made.info(""));
  const double seconds[] = {9, 4, 1, 3, 2};  // measured: 4, 1, 3, 2: the lower median is 2, step 5
  double time = 0;
  for (int64_t s = 1; s <= 5; ++s) {
    for (int64_t r = 0; r < 4; ++r) {
      RankStep step = made.step(r, s);
      step.start = time, step.end = time + seconds[s - 1];
      step.profile.intervals.resize(1);
      step.profile.intervals[0].start = time;
      step.profile.intervals[0].end = time + 0.1 * static_cast<double>(s);
      recorder.add(step);
    }
    time += seconds[s - 1];
  }
  const Report report = recorder.finish({});
  CHECK(report.median_step == 5);
  CHECK(report.step_seconds_median == Approx(2));
  CHECK(report.parts[Part::compute] == Approx(0.5));
  CHECK(report.parts.total() == Approx(2));
  CHECK(report.parts_per_rank.size() == 4);
}

TEST_CASE("MFU is model FLOP over what the GPUs could do at their dense peak", "[P227]") {
  MadeUp made;
  RunInfo info = made.info("");
  info.hardware_flop_per_step = 1.5 * training_flop_per_step(made.scenario);
  Recorder recorder(made.scenario, made.grid(), info);
  made.run(recorder, 1, 5);  // steps of one second
  const Report report = recorder.finish({});
  CHECK(report.mfu == Approx(training_flop_per_step(made.scenario) / (4 * 19.5e12)));
  CHECK(report.hfu == Approx(1.5 * report.mfu));
  CHECK_THAT(report.peak_source, Contains("data sheet"));
}

TEST_CASE("report.json has the keys that other programs rely on, and parses") {
  const TemporaryDirectory dir;
  MadeUp made;
  made.scenario.cluster.price_per_gpu_hour = 36;
  made.scenario.cluster.currency = "EUR";
  Recorder recorder(made.scenario, made.grid(), made.info(dir.path()));
  made.run(recorder, 1, 10);
  for (int64_t r = 0; r < 4; ++r) recorder.add_validation(r, 10, 40, 10);
  RunEnd end;
  end.wall_seconds = 2.5;
  end.environment["host"] = "h";
  recorder.finish(end);
  Json::Value json;
  std::istringstream(file_bytes(dir / "report.json")) >> json;
  CHECK(json["schema"] == "moetwin-report/1");
  for (const char* key :
       {"scenario", "backend", "fidelity", "seed", "world_size", "steps_asked", "steps_done",
        "wall_seconds", "loss", "throughput", "step_parts_seconds", "memory", "traffic",
        "host_syncs_per_step", "routing", "verdicts", "cost", "environment", "settings"})
    CHECK(json.isMember(key));
  CHECK(json["loss"]["first"].asDouble() == Approx(4.9));
  CHECK(json["loss"]["last"].asDouble() == Approx(4.0));
  CHECK(json["loss"]["validation_last"].asDouble() == Approx(4.0));
  CHECK(json["loss"]["series_file"] == "steps.csv");
  CHECK(json["throughput"]["tokens_per_second"].asDouble() == Approx(256));
  CHECK(json["throughput"]["warmup_steps_excluded"] == 2);
  CHECK(json["step_parts_seconds"]["compute"].asDouble() == Approx(0.5));
  CHECK(json["memory"]["peak_bytes_per_rank"].size() == 4);
  CHECK(json["memory"]["peak_bytes_per_rank"][3] == 13 << 20);
  CHECK(json["memory"]["classes"]["parameters"] == 13 << 20);  // of the fullest rank
  CHECK(json["traffic"]["all_to_all_bytes_per_step"].asDouble() == 4006);
  CHECK(json["traffic"]["all_to_all_off_node_bytes_per_step"].asDouble() == 400);
  CHECK(json["traffic"]["all_reduce_bytes_per_step"].asDouble() == 2000);
  CHECK(json["traffic"]["bytes_per_step_by_purpose"]["dispatch"].asDouble() == 4006);
  CHECK(json["host_syncs_per_step"].asDouble() == 4);
  const Json::Value& layer = json["routing"]["layers"][1];
  CHECK(layer["layer"] == 3);
  CHECK(layer["load_cv"].asDouble() == Approx(std::sqrt(0.125)));
  CHECK(layer["mean_probability"][0].asDouble() == Approx(0.375));
  for (const char* key :
       {"imbalance_experts", "imbalance_ranks", "entropy", "dead_share", "dropped_share", "churn"})
    CHECK(layer.isMember(key));
  CHECK(json["verdicts"].empty());
  // 4 GPUs x 10 s = 1/90 GPU hour at 36 an hour.
  CHECK(json["cost"]["gpu_hours"].asDouble() == Approx(1 / 90.));
  CHECK(json["cost"]["price"].asDouble() == Approx(0.4));
  CHECK(json["cost"]["currency"] == "EUR");
}

TEST_CASE("what faults cost is a step's mean, a share and tokens a second of the run without") {
  Report r;
  r.device_seconds = 12;
  r.steps_recorded = 4;
  CHECK_FALSE(report_json(r).isMember("faults"));
  r.fault_costs = FaultCosts{10, 1200, {{"gpu of rank 1 at 0.5", 1.5}}};
  const Json::Value faults = report_json(r)["faults"];
  CHECK(faults["step_seconds"].asDouble() == Approx(3));
  CHECK(faults["step_seconds_without"].asDouble() == Approx(2.5));
  CHECK(faults["step_seconds_lost"].asDouble() == Approx(0.5));
  CHECK(faults["share_lost"].asDouble() == Approx(0.2));
  CHECK(faults["tokens_per_second_lost"].asDouble() == Approx(120 - 100));
  const Json::Value& each = faults["each"][0];
  CHECK(each["fault"] == "gpu of rank 1 at 0.5");
  CHECK(each["step_seconds_lost"].asDouble() == Approx(0.375));
  CHECK(each["share_lost"].asDouble() == Approx(1.5 / 10.5));
  CHECK(each["tokens_per_second_lost"].asDouble() == Approx(1200 / 10.5 - 100));
  const std::string text = summary(r);
  CHECK_THAT(text, Contains("500.00 ms a step") && Contains("20.0 %") && Contains("20 tokens/s") &&
                       Contains("step 3.00 s instead of 2.50 s"));
}

TEST_CASE("memory beyond the GPU is a verdict that names rank, step, class and bytes over") {
  MadeUp made;
  RunInfo info = made.info("");
  info.device.memory_bytes = 12 << 20;  // ranks 0 to 3 peak at 10 to 13 MiB
  Recorder recorder(made.scenario, made.grid(), info);
  made.run(recorder, 1, 2);
  const Report report = recorder.finish({});
  REQUIRE(report.verdicts.size() == 1);
  const Verdict& verdict = report.verdicts[0];
  CHECK(verdict.kind == "out_of_memory");
  CHECK(verdict.onset_step == 1);
  CHECK_THAT(verdict.evidence, Contains("1 of 4 ranks") && Contains("rank 3 needs 13.00 MiB") &&
                                   Contains("1.00 MiB over") && Contains("parameters"));
  CHECK(report.ep_groups.size() == 2);
  CHECK(report.ep_groups[1].lowest == 12 << 20);
  CHECK(report.ep_groups[1].highest == 13 << 20);
}

TEST_CASE("the spread of steps: percentiles by nearest rank", "[P185]") {
  MadeUp made;
  made.scenario.training_config.warmup_steps_excluded = 0;
  Recorder recorder(made.scenario, made.grid(), made.info(""));
  // Steps of 1, 2, ..., 50 s, one after the other.
  double now = 0;
  for (int64_t s = 1; s <= 50; ++s) {
    const auto seconds = static_cast<double>(s);
    for (int64_t r = 0; r < made.world; ++r) {
      RankStep step = made.step(r, s);
      step.profile = {};
      step.start = now, step.end = now + seconds;
      recorder.add(step);
    }
    now += seconds;
  }
  const Report report = recorder.finish({});
  CHECK(report.step_seconds_p5 == Approx(3));  // the third of 50 is at 4%, the fourth at 6%
  CHECK(report.step_seconds_median == Approx(25));
  CHECK(report.step_seconds_p95 == Approx(47));
  CHECK(report_json(report)["throughput"]["step_seconds_p95"].asDouble() == Approx(47));
}

TEST_CASE("a run of no step has a report too") {
  const TemporaryDirectory dir;
  MadeUp made;
  Recorder recorder(made.scenario, made.grid(), made.info(dir.path()));
  const Report report = recorder.finish({});
  CHECK(report.steps_done == 0);
  CHECK(std::isnan(report.tokens_per_second));
  CHECK_THAT(file_bytes(dir / "report.json"), Contains("\"tokens_per_second\": null"));
}

TEST_CASE("JSON numbers are the shortest that read back; what is unknown is null") {
  Json::Value json;
  json["a"] = 0.1;
  json["b"] = 1e-300;
  json["c"] = std::nan("");
  json["d"] = Json::Int64(1) << 0;
  json["e"] = 3.0;
  json["f"].append(1);
  json["f"].append(2.5);
  json["g"] = "quote \" and\nline";
  CHECK(json_text(json) ==
        "{\n  \"a\": 0.1,\n  \"b\": 1e-300,\n  \"c\": null,\n  \"d\": 1,\n  \"e\": 3,\n"
        "  \"f\": [1, 2.5],\n  \"g\": \"quote \\\" and\\nline\"\n}\n");
}

TEST_CASE("a slow rank sets the step; the others' waiting is reported by rank", "[P204]") {
  MadeUp made(8, 2, 8, 1);
  made.scenario.training_config.warmup_steps_excluded = 0;
  Recorder recorder(made.scenario, made.grid(), made.info(""));
  for (int64_t r = 0; r < 8; ++r) {
    RankStep step = made.step(r, 1);
    step.profile.intervals.resize(1);
    step.profile.intervals[0].start = 0;
    step.profile.intervals[0].end = step.end = r == 3 ? 1.5 : 1.0;  // arithmetic only
    recorder.add(step);
  }
  const Report report = recorder.finish({});
  CHECK(report.step_seconds_median == Approx(1.5));
  for (size_t r = 0; r < 8; ++r) {
    CHECK(report.parts_per_rank[r][Part::compute] == Approx(r == 3 ? 1.5 : 1.0));
    CHECK(report.parts_per_rank[r][Part::idle] == Approx(r == 3 ? 0.0 : 0.5));
  }
}

TEST_CASE("what ended a run early stays in its report") {
  const TemporaryDirectory dir;
  MadeUp made;
  Recorder recorder(made.scenario, made.grid(), made.info(dir.path()));
  made.run(recorder, 1, 3);
  RunEnd end;
  end.error = "NaN in logits";
  CHECK(recorder.finish(end).error == "NaN in logits");
  CHECK_THAT(file_bytes(dir / "report.json"), Contains("\"error\": \"NaN in logits\""));
}
