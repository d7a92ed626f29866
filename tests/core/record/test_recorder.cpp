#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <sstream>

#include "core/base/error.h"
#include "core/moe/routing_trace.h"
#include "tests/core/record/recorded_run.h"
#include "tests/support/temporary_directory.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Contains;

namespace {

/// Rows of a CSV file, by heading.
std::vector<std::map<std::string, std::string>> csv(const std::string& path) {
  std::istringstream in(file_bytes(path));
  const auto split = [](const std::string& line) {
    std::vector<std::string> fields;
    std::istringstream stream(line + ",");
    for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
    return fields;
  };
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> names = split(line);
  std::vector<std::map<std::string, std::string>> rows;
  while (std::getline(in, line)) {
    const std::vector<std::string> fields = split(line);
    REQUIRE(fields.size() == names.size());
    rows.emplace_back();
    for (size_t i = 0; i < names.size(); ++i) rows.back()[names[i]] = fields[i];
  }
  return rows;
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("a run directory appears with finish() and not before") {
  const TemporaryDirectory dir;
  const MadeUp made;
  {
    Recorder recorder(made.scenario, made.grid(), made.info(dir / "run"));
    made.run(recorder, 1, 2);
    for (const std::string& name : names_in(dir / "run")) CHECK(name.ends_with(".part"));
  }
  CHECK_FALSE(std::filesystem::exists(dir / "run"));  // given up: nothing half-written stays
  Recorder recorder(made.scenario, made.grid(), made.info(dir / "run"));
  made.run(recorder, 1, 2);
  recorder.finish({});
  CHECK(names_in(dir / "run") ==
        std::vector<std::string>{"report.json", "routing.csv", "steps.csv", "timeline.json"});
}

TEST_CASE("an output directory that cannot be written is a plain error naming it", "[P219]") {
  const TemporaryDirectory dir;
  const MadeUp made;
  dir.write("file", "x");
  try {
    Recorder recorder(made.scenario, made.grid(), made.info(dir / "file/run"));
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::configuration);
    CHECK_THAT(error.what(), Contains(dir / "file/run"));
  }
  if (::geteuid() != 0) {  // root may write anywhere
    std::filesystem::create_directory(dir / "locked");
    std::filesystem::permissions(dir / "locked", std::filesystem::perms::owner_read);
    CHECK_THROWS_WITH(Recorder(made.scenario, made.grid(), made.info(dir / "locked")),
                      Contains(dir / "locked"));
    std::filesystem::permissions(dir / "locked", std::filesystem::perms::owner_all);
  }
  // A directory stands where steps.csv should go: said when the file gets its name.
  std::filesystem::create_directories(dir / "run/steps.csv/x");
  Recorder recorder(made.scenario, made.grid(), made.info(dir / "run"));
  CHECK_THROWS_WITH(recorder.finish({}), Contains(dir / "run/steps.csv"));
}

TEST_CASE("steps.csv: the loss of the job, seconds from the last rank, parts that sum") {
  const TemporaryDirectory dir;
  const MadeUp made;
  Recorder recorder(made.scenario, made.grid(), made.info(dir.path()));
  made.run(recorder, 1, 3);
  // Step 4: rank 2 is half a second late, ranks 0, 1 and 3 begin step 5 before it ends.
  for (int64_t r = 0; r < 4; ++r) {
    RankStep step = made.step(r, 4);
    if (r == 2) step.end += 0.5;
    recorder.add(step);
  }
  CHECK(recorder.steps_done() == 4);
  recorder.finish({});
  const auto rows = csv(dir / "steps.csv");
  REQUIRE(rows.size() == 4);
  for (size_t s = 0; s < 4; ++s) {
    const auto& row = rows[s];
    const auto at = [&](const char* name) { return std::stod(row.at(name)); };
    CHECK(at("step") == static_cast<double>(s + 1));
    CHECK(at("loss") == Approx(MadeUp::loss(static_cast<int64_t>(s) + 1)));
    CHECK(at("aux_loss") == Approx(1.1));
    CHECK(at("z_loss") == Approx(0.5));
    CHECK(at("step_seconds") == Approx(s == 3 ? 1.5 : 1.0));
    CHECK(at("tokens_per_second") == Approx(256 / (s == 3 ? 1.5 : 1.0)));
    CHECK(at("compute_seconds") == Approx(0.5));
    CHECK(at("forward_seconds") == Approx(0.2));
    CHECK(at("all_to_all_seconds") == Approx(0.2));
    CHECK(at("all_to_all_hidden_seconds") == Approx(0.05));
    CHECK(at("host_seconds") == Approx(0.1));
    double parts = 0;
    for (const char* part : {"compute", "all_to_all", "other_communication", "offload", "bubble",
                             "host", "data", "idle"})
      parts += at((std::string(part) + "_seconds").c_str());
    CHECK(parts == Approx(at("step_seconds")));
    CHECK(at("all_to_all_bytes") == 4006);  // 1000 + r over four ranks
    CHECK(at("all_reduce_bytes") == 2000);
    CHECK(at("host_syncs") == 4);
    CHECK(at("peak_memory_bytes") == 13 << 20);
    CHECK(at("imbalance_experts") == Approx(1.5));
    // Shares 1.5, 1, 1, 0.5: standard deviation sqrt(0.5 / 4).
    CHECK(at("load_cv") == Approx(std::sqrt(0.125)));
  }
}

TEST_CASE("ranks may arrive in any order: the bytes are the same") {
  const TemporaryDirectory dir;
  const MadeUp made;
  for (const char* name : {"a", "b"}) {
    Recorder recorder(made.scenario, made.grid(), made.info(dir / name));
    if (name[0] == 'a') {
      made.run(recorder, 1, 10);
    } else {
      // Rank 3 runs ahead by three steps, the others come backwards.
      for (int64_t s = 1; s <= 3; ++s) recorder.add(made.step(3, s));
      for (int64_t s = 1; s <= 10; ++s) {
        if (s > 3) recorder.add(made.step(3, s));
        for (int64_t r : {2, 0, 1}) recorder.add(made.step(r, s));
      }
    }
    recorder.finish({});
  }
  for (const char* file : {"/steps.csv", "/routing.csv", "/timeline.json", "/report.json"})
    CHECK(file_bytes(dir / "a" + file) == file_bytes(dir / "b" + file));
}

TEST_CASE("what only some ranks did is left out") {
  const TemporaryDirectory dir;
  const MadeUp made;
  Recorder recorder(made.scenario, made.grid(), made.info(dir.path()));
  made.run(recorder, 1, 2);
  for (int64_t r : {0, 2, 3}) recorder.add(made.step(r, 3));
  CHECK(recorder.steps_done() == 2);
  const Report report = recorder.finish({});
  CHECK(report.steps_done == 2);
  CHECK(csv(dir / "steps.csv").size() == 2);
}

TEST_CASE("routing.csv has totals and rows of ranks and reads back as a trace") {
  const TemporaryDirectory dir;
  MadeUp made;
  Recorder recorder(made.scenario, made.grid(), made.info(dir.path()));
  made.run(recorder, 1, 2);
  recorder.finish({});
  // Per step: 2 layers x (totals + 4 ranks) x 4 experts.
  CHECK(csv(dir / "routing.csv").size() == 2 * 2 * 5 * 4);
  const RoutingTrace trace({dir / "routing.csv"}, 4);
  CHECK(trace.steps() == 2);
  CHECK(trace.shares(1, 3, 2, 4) == std::vector<double>{48, 32, 32, 16});
  CHECK(trace.shares(1, 3, 0, 1) == std::vector<double>{192, 128, 128, 64});
}

TEST_CASE("without scores, loss and layers the fields stay empty") {
  const TemporaryDirectory dir;
  MadeUp made;
  Recorder recorder(made.scenario, made.grid(), made.info(dir.path()));
  for (int64_t r = 0; r < 4; ++r) {
    RankStep step = made.step(r, 1);
    step.layers.clear();
    step.valid_tokens = 0, step.ce_sum = 0;
    recorder.add(step);
  }
  const Report report = recorder.finish({});
  const auto row = csv(dir / "steps.csv").at(0);
  for (const char* name : {"loss", "aux_loss", "load_cv", "imbalance_ranks"})
    CHECK(row.at(name).empty());
  CHECK(std::isnan(report.first_loss));
  CHECK(report.layers.empty());
}

TEST_CASE("validation: the mean over ranks, when all are in") {
  MadeUp made;
  Recorder recorder(made.scenario, made.grid(), made.info(""));
  recorder.add_validation(0, 5, 30, 10);
  CHECK(std::isnan(recorder.validation_loss(5)));
  recorder.add_validation(3, 5, 10, 10);
  recorder.add_validation(1, 5, 20, 20);
  recorder.add_validation(2, 5, 0, 0);
  CHECK(recorder.validation_loss(5) == Approx(1.5));
  CHECK(recorder.finish({}).validation_last == Approx(1.5));
}

TEST_CASE("a thousand ranks, sixteen layers: rank rows every n-th step, nothing kept") {
  const TemporaryDirectory dir;
  MadeUp made(1024, 64, 64, 16);
  made.scenario.training_config.steps = 100;
  Recorder recorder(made.scenario, made.grid(), made.info(dir.path()));
  made.run(recorder, 10, 11);
  recorder.finish({});
  // 1024 x 16 x 64 rows are 11 times the limit: step 11 has them, step 10 only totals.
  std::istringstream in(file_bytes(dir / "routing.csv"));
  std::map<std::string, int64_t> rows;
  for (std::string line; std::getline(in, line);) ++rows[line.substr(0, line.find(','))];
  CHECK(rows.at("10") == 16 * 64);
  CHECK(rows.at("11") == 1024 * 16 * 64 + 16 * 64);
}
