#include <json/reader.h>

#include <catch2/catch.hpp>

#include "analysis/compare/compare.h"
#include "core/base/philox.h"
#include "tests/analysis/run_files.h"
#include "tests/cli/run.h"

namespace moetwin {
namespace {

using Catch::Contains;
using test::RunFiles;

constexpr const char* kColumns =
    "loss,step_seconds,tokens_per_second,compute_seconds,all_to_all_seconds,host_seconds,"
    "load_cv,all_to_all_bytes,host_syncs";

double normal(uint64_t seed, int64_t step, uint32_t column) {
  return philox_normal(philox_key(seed, Purpose::data, column, 0), static_cast<uint64_t>(step));
}

/// A run of `steps` steps of 10 ms: 6 compute, 3 all-to-all, 1 host; `noise` in each part,
/// correlated from step to step by `memory`.
void write_run(RunFiles& files, uint64_t seed, double noise, double memory = 0,
               double compute = 6e-3, int64_t steps = 120,
               const std::string& settings = R"({"training_config": {"seed": 1}})") {
  files.report(R"({"schema": "moetwin-report/1", "scenario": "made", "backend": "cuda", "seed": 1,
    "memory": {"peak_bytes_per_rank": [100, 200], "classes": {"parameters": 50}},
    "throughput": {"warmup_steps_excluded": 2}, "settings": )" +
               settings + "}");
  std::vector<double> state(8);
  files.steps(kColumns, steps, [&](int64_t step) {
    for (uint32_t c = 0; c < 8; ++c)
      state[c] = memory * state[c] + std::sqrt(1 - memory * memory) * normal(seed, step, c);
    const auto moved = [&](double value, size_t c) { return value * (1 + noise * state[c]); };
    const double work = moved(compute, 0), exchange = moved(3e-3, 1), host = moved(1e-3, 2);
    const double seconds = work + exchange + host;
    return std::vector<double>{moved(3 - 0.01 * static_cast<double>(step), 3),
                               seconds,
                               4096 / seconds,
                               work,
                               exchange,
                               host,
                               moved(0.3, 4),
                               std::round(moved(1e6, 5)),
                               4};
  });
}

Comparison compared(const RunFiles& a, const RunFiles& b) {
  return compare({read_run(a.path()), read_run(b.path())});
}

const Difference& named(const PairComparison& pair, const std::string& name) {
  for (const Difference& d : pair.differences)
    if (d.a.name == name) return d;
  throw std::runtime_error("no figure " + name);
}

int64_t claims(const PairComparison& pair) {
  return std::count_if(pair.differences.begin(), pair.differences.end(),
                       [](const Difference& d) { return d.standing == Standing::beyond; });
}

std::string timeline(double gemm_us) {
  std::string text = R"({"traceEvents": [{"name": "process_name", "ph": "M", "pid": 0})";
  for (int rank = 0; rank < 2; ++rank)
    for (int i = 0; i < 4; ++i)
      text += fmt::format(
          R"(,{{"name": "{}", "cat": "{}", "ph": "X", "pid": {}, "tid": 1, "ts": {}, "dur": {},
             "args": {{"step": 9, "phase": "forward", "bytes": {}{}}}}})",
          i % 2 ? "all_to_all_v" : "gemm", i % 2 ? "all_to_all" : "compute", rank, 1000 * i,
          i % 2 ? 500.0 : gemm_us, 4096 * (i / 2 + 1), i % 2 ? R"(, "group": "ep")" : "");
  return text + "]}";
}

}  // namespace

TEST_CASE("Student's t has the tails of the tables") {
  // Two-sided 5% and 1% points of textbooks.
  CHECK(student_two_sided(2.228, 10) == Approx(0.05).epsilon(0.005));
  CHECK(student_two_sided(3.169, 10) == Approx(0.01).epsilon(0.005));
  CHECK(student_two_sided(12.706, 1) == Approx(0.05).epsilon(0.005));
  CHECK(student_two_sided(0, 5) == Approx(1));
  CHECK(student_two_sided(1.962, 1000) == Approx(0.05).epsilon(0.005));
}

TEST_CASE("Holm's correction steps down") {
  // Levels 0.05/4, 0.05/3, 0.05/2, 0.05: 0.010 falls, 0.016 falls, 0.03 does not, so neither 0.04.
  CHECK(holm({0.04, 0.010, 0.03, 0.016}) == std::vector<bool>{false, true, false, true});
  CHECK(holm({0.013, 0.9, 0.9, 0.9}) == std::vector<bool>{false, false, false, false});
}

TEST_CASE("a difference without noise is exact") {
  const NoiseTest same = noise_test({1, 2, 3}, {1, 2, 3}, 1);
  CHECK(same.judged);
  CHECK(same.p == 1);
  const NoiseTest shifted = noise_test({1, 2, 3}, {1.5, 2.5, 3.5}, 1);
  CHECK(shifted.judged);
  CHECK(shifted.p == 0);
  CHECK(shifted.difference == 0.5);
  CHECK(!noise_test({1}, {2}, 1).judged);
}

TEST_CASE("two identical runs are identical") {
  RunFiles a, b;
  write_run(a, 5, 0.01);
  write_run(b, 5, 0.01);
  for (RunFiles* run : {&a, &b}) run->directory.write("timeline.json", timeline(800));
  const Comparison c = compared(a, b);
  CHECK(c.pairs[0].identical);
  CHECK(c.pairs[0].headline == "identical in every figure");
  CHECK(c.pairs[0].ops.aligned == 8);
  const Ran ran = run({"compare", a.path(), b.path(), "--tolerance", "0"});
  CHECK(ran.code == 0);
  CHECK_THAT(ran.out, Contains("identical") && Contains("The scenarios are equal."));
}

TEST_CASE("a planted slow-down of 5% of one class of ops is found and named") {
  RunFiles a, b;
  const bool noisy = GENERATE(false, true);
  write_run(a, 5, noisy ? 0.01 : 0);
  write_run(b, 6, noisy ? 0.01 : 0, 0, 6e-3 * 1.05);
  a.directory.write("timeline.json", timeline(800));
  b.directory.write("timeline.json", timeline(840));
  const Comparison c = compared(a, b);
  const PairComparison& pair = c.pairs[0];
  CHECK(named(pair, "compute_seconds").standing == Standing::beyond);
  CHECK(named(pair, "compute_seconds").relative == Approx(0.05).margin(noisy ? 0.01 : 1e-9));
  CHECK(named(pair, "step_seconds").standing == Standing::beyond);
  CHECK(named(pair, "all_to_all_seconds").standing != Standing::beyond);
  CHECK_THAT(pair.headline,
             Contains("compute_seconds is +") && Contains("`gemm`") && Contains("+5.0% a call"));
  CHECK(pair.ops.classes[0].name == "gemm");
  CHECK(pair.ops.classes[0].ratio() == Approx(1.05));
  CHECK(run({"compare", a.path(), b.path()}).code == 1);
  CHECK(run({"compare", a.path(), b.path(), "--tolerance", "0.2"}).code == 0);
}

TEST_CASE("pairs that differ in nothing but noise are seldom told apart") {
  const double memory = GENERATE(0.0, 0.6, 0.9);
  const int64_t steps = GENERATE(30, 120);
  int64_t pairs_with_claims = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RunFiles a, b;
    write_run(a, 1000 + 2 * seed, 0.02, memory, 6e-3, steps);
    write_run(b, 1001 + 2 * seed, 0.02, memory, 6e-3, steps);
    pairs_with_claims += claims(compared(a, b).pairs[0]) > 0;
  }
  CAPTURE(memory, steps);
  CHECK(pairs_with_claims <= 10);  // 5% of 200
}

TEST_CASE("a difference far beyond a slow drift is judged, one within it is not") {
  std::vector<double> a, drifting, near_by;
  for (int i = 0; i < 200; ++i) {
    a.push_back(1);
    const double drift = 0.01 * std::sin(i / 200.0);
    drifting.push_back(1.35 + drift);
    near_by.push_back(1.005 + drift);
  }
  const NoiseTest far = noise_test(a, drifting, 1);
  CHECK(far.judged);
  CHECK(far.p < 0.001);
  const NoiseTest near = noise_test(a, near_by, 1);
  CHECK(!near.judged);
  CHECK_THAT(near.why_not, Contains("drift together"));
}

TEST_CASE("a difference is relative to the steps that were compared") {
  // A goes on for 100 steps at half the rate; in the 20 that B has too, A does 1000 a second and
  // B 10.
  RunFiles a, b;
  const auto write = [](RunFiles& files, int64_t steps, auto&& rate) {
    files.report(
        R"({"schema": "moetwin-report/1", "scenario": "made", "backend": "sim", "seed": 1})");
    files.steps("tokens_per_second", steps,
                [&](int64_t step) { return std::vector<double>{rate(step)}; });
  };
  write(a, 120, [](int64_t step) { return step <= 20 ? 1000.0 : 500.0; });
  write(b, 20, [](int64_t) { return 10.0; });
  const Comparison both = compared(a, b);
  CHECK(named(both.pairs[0], "tokens_per_second").relative == Approx(-990.0 / 1000));
}

TEST_CASE("single values are no claim, but count with a tolerance") {
  RunFiles a, b;
  write_run(a, 5, 0);
  write_run(b, 5, 0);
  b.report(R"({"schema": "moetwin-report/1", "scenario": "made", "backend": "cuda", "seed": 1,
    "memory": {"peak_bytes_per_rank": [100, 230]}, "throughput": {"warmup_steps_excluded": 2},
    "settings": {"training_config": {"seed": 1}}})");
  const Comparison c = compared(a, b);
  const Difference& d = named(c.pairs[0], "memory.peak_bytes_per_rank");
  CHECK(d.standing == Standing::one_value);
  CHECK(d.relative == Approx(0.15));
  CHECK(run({"compare", a.path(), b.path()}).code == 0);
  CHECK(run({"compare", a.path(), b.path(), "--tolerance", "0.1"}).code == 1);
  CHECK(run({"compare", a.path(), b.path(), "--tolerance", "0.2"}).code == 0);
}

TEST_CASE("what differs in the scenarios is listed; another seed judges no learning") {
  RunFiles a, b;
  write_run(a, 5, 0.01);
  write_run(b, 6, 0.01, 0, 6e-3, 120,
            R"({"training_config": {"seed": 2, "steps": 9}, "routing": {"source": "W1"}})");
  b.report(R"({"schema": "moetwin-report/1", "scenario": "other", "backend": "sim", "seed": 2,
    "throughput": {"warmup_steps_excluded": 2},
    "settings": {"training_config": {"seed": 2, "steps": 9}, "routing": {"source": "W1"}}})");
  const Comparison c = compared(a, b);
  const PairComparison& pair = c.pairs[0];
  REQUIRE(pair.scenario.size() == 4);
  CHECK(pair.scenario[0].key == "routing");
  CHECK(pair.scenario[1].key == "training_config.seed");
  CHECK(pair.scenario[1].b == "2");
  CHECK(pair.scenario[2].key == "training_config.steps");
  CHECK(pair.scenario[2].a == "(absent)");
  CHECK(pair.scenario[3].key == "backend");
  CHECK(named(pair, "loss").standing == Standing::not_judged);
  CHECK_THAT(named(pair, "loss").why, Contains("seeds differ"));
}

TEST_CASE("op lists that part are said to part, with the place") {
  RunFiles a, b;
  write_run(a, 5, 0);
  write_run(b, 5, 0);
  std::string other = timeline(800);
  other.replace(other.find("all_to_all_v"), 12, "all_reduce");
  a.directory.write("timeline.json", timeline(800));
  b.directory.write("timeline.json", other);
  const Alignment ops = compared(a, b).pairs[0].ops;
  CHECK(ops.aligned == 7);
  CHECK(ops.first_mismatch ==
        "rank 0, stream 0, op 2: all_to_all_v in ep of 4096 bytes against all_reduce in ep of "
        "4096 bytes");
}

TEST_CASE("how the host's time falls into stretches is no part of the op lists") {
  RunFiles a, b;
  write_run(a, 5, 0);
  write_run(b, 5, 0);
  std::string with_host = timeline(800);
  with_host.insert(with_host.size() - 2,
                   R"(,{"name": "host", "cat": "host", "ph": "X", "pid": 0, "tid": 0, "ts": 0,
                      "dur": 1, "args": {"step": 9, "phase": "forward", "bytes": 0}})");
  a.directory.write("timeline.json", timeline(800));
  b.directory.write("timeline.json", with_host);
  const Alignment ops = compared(a, b).pairs[0].ops;
  CHECK(ops.aligned == 8);
  CHECK(ops.ops_b == 8);
  CHECK(ops.first_mismatch == "");
}

TEST_CASE("comparisons come as JSON, CSV and Markdown, for several runs") {
  RunFiles a, b, third;
  write_run(a, 5, 0);
  write_run(b, 5, 0);
  write_run(third, 5, 0, 0, 7e-3);
  const Ran json = run({"compare", a.path(), b.path(), third.path(), "--json"});
  CHECK(json.code == 1);
  Json::Value value;
  std::istringstream in(json.out);
  REQUIRE(Json::parseFromStream(Json::CharReaderBuilder(), in, &value, nullptr));
  CHECK(value["schema"] == "moetwin-comparison/1");
  REQUIRE(value["pairs"].size() == 2);
  CHECK(value["pairs"][0]["identical"] == true);
  CHECK(value["pairs"][1]["identical"] == false);
  bool seen = false;
  for (const Json::Value& f : value["pairs"][1]["figures"]) {
    if (f["figure"] != "compute_seconds") continue;
    seen = true;
    CHECK(f["a"].asDouble() == Approx(6e-3));
    CHECK(f["b"].asDouble() == Approx(7e-3));
    CHECK(f["beyond_noise"] == true);
    CHECK(f["source"] == "steps.csv compute_seconds");
  }
  CHECK(seen);
  const Ran csv = run({"compare", a.path(), b.path(), "--format", "csv"});
  CHECK_THAT(csv.out, Contains("made,made,step parts,compute_seconds,s,0.006") &&
                          Contains(",0,0,0,0,equal\n"));
  const Ran md = run({"compare", a.path(), third.path(), "--format", "markdown"});
  CHECK_THAT(md.out, Contains("| figure | made | made |") && Contains("beyond noise |"));
}

}  // namespace moetwin
