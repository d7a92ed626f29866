#include <catch2/catch.hpp>

#include "tests/cli/run.h"

using namespace moetwin;
using Catch::Matchers::Contains;

TEST_CASE("import writes a scenario that check accepts, and tells what it left out") {
  const Folder folder("import");
  const std::string python = folder.write("mine.py",
                                          "model_config = {'hidden_size': 64, 'secret': 1}\n"
                                          "print(model_config)\n");
  const Ran ran = run({"import", python, "-o", folder.file("mine.json")});
  CHECK(ran.code == 0);
  CHECK(ran.out.empty());
  CHECK_THAT(ran.err, Contains("1 keys taken over, 2 left out") &&
                          Contains("mine.py:1: model_config.secret = 1") &&
                          Contains("mine.py:2: print(model_config)"));
  CHECK(run({"check", folder.file("mine.json")}).code == 0);
  CHECK(run({"import", python}).out == folder.read("mine.json"));
}

TEST_CASE("import ends with 2 where the result is not valid, or nothing can be read") {
  const Folder folder("import-bad");
  const std::string python = folder.write("bad.py", "training_config = {'steps': 0}\n");
  const Ran ran = run({"import", python, "-o", folder.file("bad.json")});
  CHECK(ran.code == 2);
  CHECK_THAT(folder.read("bad.json"), Contains("\"steps\": 0"));
  CHECK_THAT(ran.err, Contains("not valid yet") && Contains("0 must be an integer of at least 1"));
  CHECK(run({"import", folder.file("absent.py")}).code == 2);
  CHECK(run({"import", folder.write("empty.py", "")}).code == 2);
  CHECK(run({"import"}).code == 2);
}

TEST_CASE("a Hugging Face model is imported with its weights, trained from and exported") {
  const Folder folder("import-model");
  const std::string model = std::string(MOETWIN_FIXTURES) + "/huggingface/deepseek_v3";
  const Ran imported = run({"import", model, "-o", folder.file("mine.json")});
  INFO(imported.err);
  REQUIRE(imported.code == 0);
  CHECK_THAT(imported.err, Contains("mine-weights: ") && Contains("parameters") &&
                               Contains("--weights " + folder.file("mine-weights")));
  // A second time it is there already; without -o there is nowhere to write.
  const Ran again = run({"import", model, "-o", folder.file("mine.json")});
  CHECK(again.code == 2);
  CHECK_THAT(again.err, Contains("mine-weights: is there already"));
  CHECK(run({"import", model}).code == 0);
  const Ran exported =
      run({"export", folder.file("mine-weights"), "--out", folder.file("back"), "--dtype", "bf16"});
  INFO(exported.err);
  CHECK(exported.code == 0);
  CHECK_THAT(exported.err, Contains("deepseek_v3 in bf16"));
  CHECK_THAT(exported.err, Contains("bias_update_rate"));
  CHECK(std::filesystem::exists(folder.file("back/model.safetensors")));
  CHECK_THAT(folder.read("back/config.json"), Contains("\"qk_rope_head_dim\": 8"));
  const Ran full = run({"export", folder.file("mine-weights"), "--out", folder.file("back")});
  CHECK(full.code == 2);
  CHECK_THAT(full.err, Contains("is not empty"));
  CHECK(run({"export", folder.file("absent"), "--out", folder.file("x")}).code == 2);
}

TEST_CASE("weights of a model that computes something else are refused") {
  const Folder folder("import-other");
  namespace fs = std::filesystem;
  fs::copy(std::string(MOETWIN_FIXTURES) + "/huggingface/olmoe", folder.file("model"));
  std::string config = folder.read("model/config.json");
  config.replace(config.find("\"clip_qkv\": null"), 16, "\"clip_qkv\": 8.0 ");
  folder.write("model/config.json", config);
  const Ran ran = run({"import", folder.file("model"), "-o", folder.file("mine.json")});
  CHECK(ran.code == 2);
  CHECK_THAT(ran.err, Contains("are not taken over") && Contains("clip_qkv = 8"));
  CHECK_FALSE(fs::exists(folder.file("mine-weights")));
  CHECK_THAT(folder.read("mine.json"), Contains("clip_qkv"));
}
