// `moetwin sweep` as a user runs it, on a tiny model without numerics.

#include <catch2/catch.hpp>

#include "tests/cli/run.h"

namespace moetwin {
namespace {

constexpr const char* kTiny = R"({
  "model_config": {"hidden_size": 32, "num_layers": 2, "num_attention_heads": 2, "vocab_size": 64, "sequence_length": 16,
                   "moe_layer_config": {"num_experts": 4, "expert_hidden_size": 32}},
  "distributed_config": {"world_size": 4, "data_parallel_size": 4},
  "training_config": {"steps": 3, "global_batch_size": 4, "numerics": "none"},
  "data": {"format": "synthetic"}, "cluster": {"profile": "dgx-a100-80g"}})";

TEST_CASE("a sweep runs every point, ranks them and says which are refused") {
  const Folder folder("sweep-cli");
  const std::string file = folder.write("tiny.json", kTiny), out = folder.file("sweep");
  const Ran ran = run({"sweep", file, "--quiet", "--list", "--out", out, "--over",
                       "distributed_config.data_parallel_size=4,2,1", "--over",
                       "distributed_config.expert_parallel_size=1,2,3"});
  INFO(ran.err);
  CHECK(ran.code == 0);
  CHECK(ran.out.find("Best tokens/s") != std::string::npos);
  CHECK(ran.out.find("refused: ") != std::string::npos);
  const std::string csv = folder.read("sweep/sweep.csv");
  CHECK(csv.find("\n0,4,1,done,0,") != std::string::npos);
  CHECK(csv.find("\n1,2,2,done,0,") != std::string::npos);
  CHECK(csv.find("\n2,1,3,refused,2,") != std::string::npos);
  CHECK(folder.read("sweep/sweep.html").find("Sweep of tiny") != std::string::npos);
}

TEST_CASE("a sweep that was stopped goes on with the points that are missing") {
  const Folder folder("sweep-again");
  const std::string file = folder.write("tiny.json", kTiny), out = folder.file("sweep");
  const std::vector<std::string> words{"sweep", file,     "--out",
                                       out,     "--over", "training_config.seed=1,2,3"};
  auto first = words;
  first.insert(first.end(), {"--only", "1"});
  CHECK(run(first).code == 0);
  const Ran merged = run({"sweep", "--merge", out});
  CHECK(merged.code == 4);
  CHECK(merged.err.find("2 of 3 points have not been run") != std::string::npos);
  const auto before = std::filesystem::last_write_time(out + "/points/0001/report.json");
  const Ran rest = run(words);
  CHECK(rest.code == 0);
  CHECK(rest.err.find("1 of 3 points have been run before") != std::string::npos);
  CHECK(std::filesystem::last_write_time(out + "/points/0001/report.json") == before);
  CHECK(run({"sweep", "--merge", out}).code == 0);
}

TEST_CASE("a sweep can be handed to Slurm as an array") {
  const Folder folder("sweep-slurm");
  const std::string file = folder.write("tiny.json", kTiny);
  const Ran ran = run({"sweep", file, "--over", "training_config.seed=1,2,3", "--over",
                       "data.files=[\"a b\"]", "--out", "dir", "--slurm"});
  CHECK(ran.code == 0);
  CHECK(ran.out.find("#SBATCH --array=0-2\n") != std::string::npos);
  CHECK(ran.out.find("--over 'data.files=[\"a b\"]' --out dir --only \"$SLURM_ARRAY_TASK_ID\"\n") !=
        std::string::npos);
}

TEST_CASE("what cannot be swept is refused before anything runs") {
  const Folder folder("sweep-refused");
  const std::string file = folder.write("tiny.json", kTiny), out = folder.file("sweep");
  const auto refused = [&](std::vector<std::string> words, const std::string& what) {
    words.insert(words.end(), {"--out", out});
    const Ran ran = run(words);
    INFO(ran.err);
    CHECK(ran.code == 2);
    CHECK(ran.err.find(what) != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(out));
  };
  refused({"sweep", file}, "at least one --over");
  refused({"sweep"}, "needs a scenario FILE");
  refused({"sweep", file, "--over", "training_config.seeds=1"},
          "did you mean training_config.seed?");
  refused({"sweep", file, "--over", "training_config.seed=1,2", "--only", "2"}, "points 0 to 1");
  refused({"sweep", file, "--over", "training_config.seed=1", "--rank-by", "speed"},
          "there is no such figure");
}

}  // namespace
}  // namespace moetwin
