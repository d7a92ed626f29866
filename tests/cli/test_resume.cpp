// Checkpoints as a user meets them: saved by `moetwin run`, gone on from with --resume, written
// when a signal ends the run, refused when something is wrong.

#include <json/json.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <sstream>
#include <streambuf>

#include "core/train/checkpoint/checkpoint.h"
#include "tests/cli/run.h"
#include "tests/support/in_child.h"

using namespace moetwin;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

const char* const kTraining = R"({
  "name": "small",
  "model_config": {"hidden_size": 8, "num_layers": 2, "num_attention_heads": 2, "ffn_hidden_size": 8,
    "vocab_size": 256, "sequence_length": 8,
    "moe_layer_config": {"num_experts": 4, "top_k": 2, "expert_hidden_size": 8, "bias_update_rate": 0.01}},
  "distributed_config": {"world_size": 4, "data_parallel_size": 2, "expert_parallel_size": 2},
  "training_config": {"steps": 6, "validation_every": 2, "validation_sequences": 4, "learning_rate": 0.01},
  "data": {"format": "text", "files": ["text.txt"]},
  "cluster": {"profile": "toy-8gpu"},
  "checkpoint": {"every_steps": 2, "keep_last": 0},
  "output": {"check_access": true}
})";

/// The program in a child: one simulation per process. `signal_at`: raise SIGTERM when the progress
/// shows this.
Ran run_in_child(std::vector<std::string> arguments, const std::string& signal_at = "") {
  struct Watched : std::stringbuf {
    std::string at;
    std::streamsize xsputn(const char* text, std::streamsize size) override {
      const std::streamsize written = std::stringbuf::xsputn(text, size);
      if (!at.empty() && str().find(at) != std::string::npos) {
        at.clear();
        std::raise(SIGTERM);
      }
      return written;
    }
  };
  arguments.insert(arguments.end(), {"--threads", "1"});
  const std::string bytes = test::in_child([&] {
    Watched buffer;
    buffer.at = signal_at;
    std::ostringstream out;
    std::ostream err(&buffer);
    const int code = run_program(arguments, {out, err});
    return std::to_string(code) + "\n" + buffer.str();
  });
  const size_t line = bytes.find('\n');
  return {std::stoi(bytes.substr(0, line)), "", bytes.substr(line + 1)};
}

/// Lines of a CSV whose first field is more than `step`, cut after `fields` fields (0: all).
std::vector<std::string> rows_after(const std::string& csv, int step, size_t fields) {
  std::vector<std::string> rows;
  std::istringstream in(csv);
  std::string row;
  std::getline(in, row);
  while (std::getline(in, row)) {
    if (std::stoi(row) <= step) continue;
    size_t end = 0;
    for (size_t i = 0; i < fields; ++i) end = row.find(',', end + 1);
    rows.push_back(fields ? row.substr(0, end) : row);
  }
  return rows;
}

struct Training {
  explicit Training(const std::string& name) : folder(name) {
    folder.write("text.txt",
                 std::string(3000, 'a') + "the quick brown fox" + std::string(900, 'b'));
    file = folder.write("small.json", kTraining);
  }
  Ran run(const std::string& out, std::vector<std::string> more = {},
          const std::string& signal_at = "") const {
    more.insert(more.begin(), {"run", file, "--out", folder.file(out)});
    return run_in_child(more, signal_at);
  }
  Folder folder;
  std::string file;
};

}  // namespace

TEST_CASE("a run goes on from its checkpoints: same losses, same routing rows", "[P146]") {
  const Training training("resume");
  REQUIRE(training.run("whole").code == 0);
  const Folder& folder = training.folder;
  for (const int step : {2, 4}) {
    const std::string out = "from" + std::to_string(step);
    // Without a file: the scenario is in the checkpoint, and its data is found.
    const Ran ran =
        run_in_child({"run", "--resume", folder.file("whole/checkpoints/" + checkpoint_name(step)),
                      "--out", folder.file(out), "--quiet"});
    INFO(ran.err);
    REQUIRE(ran.code == 0);
    CHECK(ran.err.empty());
    const std::string routing = folder.read(out + "/routing.csv");
    CHECK(rows_after(routing, 0, 0) == rows_after(folder.read("whole/routing.csv"), step, 0));
    CHECK(rows_after(routing, 0, 0).size() > 30);
    // step, loss, auxiliary losses, gradient norm, learning rate
    CHECK(rows_after(folder.read(out + "/steps.csv"), 0, 8) ==
          rows_after(folder.read("whole/steps.csv"), step, 8));
    Json::Value report;
    std::istringstream(folder.read(out + "/report.json")) >> report;
    CHECK(report["steps_done"] == 6);
    CHECK_THAT(report.toStyledString(), Contains("resumed from"));
  }
  // The best validation so far is carried over.
  const Manifest whole =
      Checkpoint(folder.file("whole/checkpoints/" + checkpoint_name(6))).manifest();
  const Manifest rest =
      Checkpoint(folder.file("from4/checkpoints/" + checkpoint_name(6))).manifest();
  CHECK(whole.position.best_step > 0);
  CHECK(rest.position.best_step == whole.position.best_step);
  CHECK(rest.position.best_validation_loss == whole.position.best_validation_loss);
  CHECK(whole.position.consumed_sequences == 6 * 8);

  // A run directory means its newest checkpoint; on other GPUs and for longer.
  const Ran longer =
      run_in_child({"run", training.file, "--resume", folder.file("from2"), "--gpus", "2", "--set",
                    "training_config.steps=8", "--set", "training_config.global_batch_size=8",
                    "--out", folder.file("longer"), "--quiet"});
  INFO(longer.err);
  CHECK(longer.code == 0);
  CHECK(rows_after(folder.read("longer/steps.csv"), 0, 1) == std::vector<std::string>{"7", "8"});
}

TEST_CASE("--weights begins at step 0 with the weights of a run and nothing else of it") {
  const Training training("resume-weights");
  const Folder& folder = training.folder;
  REQUIRE(training.run("first").code == 0);
  const Ran ran = training.run(
      "second", {"--weights", folder.file("first"), "--gpus", "2", "--set",
                 "training_config.global_batch_size=8", "--set", "training_config.steps=2", "--set",
                 "training_config.learning_rate=0"});
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  CHECK(rows_after(folder.read("second/steps.csv"), 0, 1) == std::vector<std::string>{"1", "2"});
  const Checkpoint first(folder.file("first/checkpoints/" + checkpoint_name(6))),
      second(folder.file("second/checkpoints/" + checkpoint_name(2)));
  CHECK(second.manifest().position.updates == 2);
  // At rate 0 the weights are those of the first run's end; the moments are those of two steps.
  for (const auto& [name, tensor] : first.manifest().tensors) {
    const TensorPart whole = TensorPart::whole(tensor.extents);
    if (name.rfind("optimizer.", 0) == 0 || name.rfind("balance", 0) == 0) continue;
    std::vector<float> a(static_cast<size_t>(whole.count)), b(a.size());
    first.read(name, DType::f32, whole, a.data());
    second.read(name, DType::f32, whole, b.data());
    INFO(name);
    CHECK(a == b);
  }
  CHECK(training.run("third", {"--weights", folder.file("first"), "--resume", folder.file("first")})
            .code == 2);
}

TEST_CASE("SIGTERM writes a checkpoint, exits 143, and the rest of the run is the same") {
  const Training training("resume-signal");
  const Folder& folder = training.folder;
  const std::vector<std::string> none{"--set", "checkpoint.every_steps=0"};
  REQUIRE(training.run("whole", none).code == 0);
  CHECK_FALSE(fs::exists(folder.file("whole/checkpoints")));
  const Ran ended = training.run("ended", none, "step 3/");
  INFO(ended.err);
  REQUIRE(ended.code == 143);
  const auto saved = complete_checkpoints(folder.file("ended/checkpoints"));
  REQUIRE(saved.size() == 1);
  const int64_t step = saved.begin()->first;
  CHECK(step >= 3);
  CHECK(step < 6);
  REQUIRE(run_in_child(
              {"run", "--resume", folder.file("ended"), "--out", folder.file("rest"), "--quiet"})
              .code == 0);
  CHECK(rows_after(folder.read("rest/routing.csv"), 0, 0) ==
        rows_after(folder.read("whole/routing.csv"), static_cast<int>(step), 0));
}

TEST_CASE("keep_last keeps the newest; a directory with newer checkpoints is not overwritten",
          "[P158]") {
  const Training training("resume-keep");
  const Folder& folder = training.folder;
  const std::vector<std::string> shared{"--set", "checkpoint.directory=" + folder.file("c"),
                                        "--set", "checkpoint.keep_last=1",
                                        "--set", "checkpoint.async=true"};
  REQUIRE(training.run("first", shared).code == 0);
  const auto saved = complete_checkpoints(folder.file("c"));
  REQUIRE(saved.size() == 1);
  CHECK(saved.begin()->first == 6);
  const Ran again = training.run("second", shared);
  CHECK(again.code == 2);
  CHECK_THAT(again.err, Contains("checkpoint of step 6") && Contains("begins at step 0") &&
                            Contains("--resume"));
}

TEST_CASE("what cannot be gone on from is refused, by class, and nothing is written") {
  const Training training("resume-refused");
  const Folder& folder = training.folder;
  REQUIRE(training.run("whole").code == 0);
  const auto refused = [&](int code, const std::vector<std::string>& more) {
    const Ran ran = training.run("out", more);
    CHECK(ran.code == code);
    CHECK_FALSE(fs::exists(folder.file("out")));
    return ran.err;
  };
  CHECK_THAT(refused(2, {"--resume", folder.file("nothing")}),
             Contains("--resume") && Contains("no such directory"));
  fs::create_directories(folder.file("empty/checkpoints/step-00000002"));
  CHECK_THAT(refused(2, {"--resume", folder.file("empty")}), Contains("no complete checkpoint"));
  CHECK_THAT(refused(2, {"--resume", folder.file("whole")}),
             Contains("training_config.steps: 6") && Contains("of step 6"));
  const std::string four = folder.file("whole/checkpoints/step-00000004");
  CHECK_THAT(refused(2, {"--resume", four, "--numerics", "none"}), Contains("numerics none"));
  CHECK_THAT(refused(2, {"--resume", four, "--set", "model_config.hidden_size=16"}),
             Contains("tensor ") && Contains("extents"));
  CHECK_THAT(refused(2, {"--resume", four, "--set", "training_config.dtype=fp64"}),
             Contains("fp32") && Contains("fp64"));
  const std::string shard = "whole/checkpoints/step-00000004/rank-00001-of-00004.safetensors";
  std::string bytes = folder.read(shard);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  folder.write(shard, bytes);
  CHECK_THAT(refused(4, {"--resume", four}), Contains("rank-00001-of-00004.safetensors") &&
                                                 Contains("tensor ") && Contains("checksum"));
  // What may differ is said.
  const Ran changed = run_in_child({"run", training.file, "--resume",
                                    folder.file("whole/checkpoints/step-00000002"), "--set",
                                    "model_config.moe_layer_config.aux_loss_factor=0.5", "--set",
                                    "training_config.seed=9", "--out", folder.file("changed")});
  CHECK(changed.code == 0);
  CHECK_THAT(changed.err, Contains("aux_loss_factor was 0.01") && Contains("is 0.5") &&
                              Contains("training_config.seed was 1"));
}
