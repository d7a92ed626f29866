#include <json/writer.h>

#include <catch2/catch.hpp>

#include "core/scenario/import_python.h"
#include "core/scenario/python_literal.h"
#include "tests/core/scenario/texts.h"

using namespace moetwin;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

// The listing of seed 001: dictionaries, comments in Chinese, an assertion over several lines.
const std::string kListing = R"(# --- MoE分布式配置 ---

model_config = {
    "model_type": "transformer_moe",
    "hidden_size": 4096,
    "num_layers": 32,
    "moe_layer_config": {
        "num_experts": 64,
        "top_k": 2,
        # MoE层的频率（例如，每2层一个MoE层）
        "moe_every_k_layers": 2,
        "aux_loss_factor": 0.01, # 负载均衡损失的权重
    }
    # ... 其他模型参数
}

distributed_config = {
    "world_size": 16,
    # 定义并行维度
    "data_parallel_size": 8,
    "expert_parallel_size": 2,
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,

    "comm_optimization": {
        "all_to_all_overlap": True,
        # ... 其他可能的标志
    },

    "distributed_backend": "nccl",
    "master_addr": "env://", # 从环境变量读取
    "master_port": "env://", # 从环境变量读取
}

# 验证配置一致性
assert distributed_config["world_size"] == (
    distributed_config["data_parallel_size"] *
    distributed_config["expert_parallel_size"]
)

# engine = framework.initialize_engine(model=model, config=distributed_config)
)";

Json::Value value_of(const std::string& expression) {
  const PythonFile file = read_python_literals("x = " + expression + "\n", "t.py");
  INFO(expression);
  REQUIRE(file.assignments.size() == 1);
  CHECK(file.unread.empty());
  return file.assignments[0].value;
}

std::string compact(const Json::Value& value) {
  Json::StreamWriterBuilder builder;
  builder["indentation"] = "";
  builder["emitUTF8"] = true;
  return Json::writeString(builder, value);
}

}  // namespace

TEST_CASE("Python literals become JSON values") {
  CHECK(value_of("True") == true);
  CHECK(value_of("None").isNull());
  CHECK(value_of("1_000_000") == 1000000);
  CHECK(value_of("-3") == -3);
  CHECK(value_of("0x1F") == 31);
  CHECK(value_of("0b101") == 5);
  CHECK(value_of("1e-4") == 1e-4);
  CHECK(value_of("-.5") == -0.5);
  CHECK(value_of("9223372036854775807") == Json::Int64(INT64_MAX));
  CHECK(value_of("'it''s'") == "its");
  CHECK(value_of("\"a\" 'b' r'\\n'") == "ab\\n");
  CHECK(value_of(R"("\n\t\x41\u00e9\\\"")") == "\n\tA\xC3\xA9\\\"");
  CHECK(value_of("'''two\nlines'''") == "two\nlines");
  CHECK(value_of("(7)") == 7);
  CHECK(compact(value_of("(7,)")) == "[7]");
  CHECK(compact(value_of("[1, [2.5, 'x'], (), {}, ]  # end")) == "[1,[2.5,\"x\"],[],{}]");
  CHECK(compact(value_of("{'a': {'b': [True, None]}, # comment }\n 3: 4,\n}")) ==
        "{\"3\":4,\"a\":{\"b\":[true,null]}}");
  CHECK(compact(value_of("{'a':\\\n 1}")) == "{\"a\":1}");
}

TEST_CASE("what is no literal is listed with its line, the rest is kept") {
  const PythonFile file = read_python_literals(R"(import torch
config: dict = {
    "dtype": torch.float16,
    "width": 4 * 1024,
    "steps": 10,
    **defaults,
    "nested": {"f": f"{x}", "ok": 1},
}
y = make(config)
def f():
    z = {"a": 1}
steps = 3; steps = 4
)",
                                               "t.py");
  REQUIRE(file.assignments.size() == 2);
  CHECK(compact(file.assignments[0].value) == "{\"nested\":{\"ok\":1},\"steps\":10}");
  CHECK(file.assignments[0].line == 2);
  CHECK(file.assignments[1].value == 4);
  std::vector<std::string> unread;
  for (const PythonUnread& u : file.unread)
    unread.push_back(std::to_string(u.line) + "|" + u.path + "|" + u.text);
  CHECK(unread == std::vector<std::string>{
                      "1||import torch", "3|config.dtype|torch.float16", "4|config.width|4 * 1024",
                      "6|config|**defaults", "7|config.nested.f|f\"{x}\"", "9||y = make(config)",
                      "10||def f():", "11||z = {\"a\": 1}", "12|steps|steps = ..."});
}

TEST_CASE("text that does not end is refused with its line") {
  const auto refusal_of = [](const std::string& text) -> std::string {
    try {
      read_python_literals(text, "t.py");
    } catch (const Error& error) {
      CHECK(error.error_class() == ErrorClass::configuration);
      return error.what();
    }
    return "accepted";
  };
  CHECK_THAT(refusal_of("x = 1\ny = {\n 'a': 1,\n"), StartsWith("t.py:2: this { is not closed"));
  CHECK_THAT(refusal_of("x = [1,\n 2"), StartsWith("t.py:1: this [ is not closed"));
  CHECK_THAT(refusal_of("\nx = 'abc\n"), StartsWith("t.py:2: this string does not end"));
  CHECK_THAT(refusal_of("assert (\n"), StartsWith("t.py:1: this ( is not closed"));
  CHECK_THAT(refusal_of("x = '\\u12'"), StartsWith("t.py:1: wrong escape"));
  CHECK_THAT(refusal_of("x = " + std::string(3000, '[')), Contains("nested too deep"));
}

TEST_CASE("seed 001's listing is imported with every key and value") {
  const ImportedScenario imported = import_python(kListing, "some/where/seed.py");
  CHECK(imported.problems.empty());
  // 3 + 4 of the model; 5 sizes, 1 optimisation, 3 of the back end.
  CHECK(imported.kept == 7 + 9);
  REQUIRE(imported.left_out.size() == 1);
  CHECK_THAT(imported.left_out[0],
             StartsWith("seed.py:36: assert distributed_config[\"world_size\"] == (") &&
                 Contains("assertion, not executed"));
  const Scenario from_python = parse_scenario(imported.text, "seed.json");
  const Scenario from_json = parse_scenario(kSeedScenario, "seed.json");
  CHECK(compact(scenario_to_json(from_python)) == compact(scenario_to_json(from_json)));
}

TEST_CASE("keys without a counterpart are kept as comments") {
  const ImportedScenario imported = import_python(R"(
model_config = {"hidden_size": 64, "hidden_dropout": 0.1, "moe_layer_config": {"gate": {"type": "x"}}}
optimizer_config = {"lr": 3e-4}
batch = 4
)",
                                                  "mine.py");
  CHECK(imported.kept == 1);
  CHECK(imported.problems.empty());
  CHECK_THAT(imported.text, Contains("//   mine.py:2: model_config.hidden_dropout = 0.1"));
  CHECK_THAT(imported.text,
             Contains("//   mine.py:2: model_config.moe_layer_config.gate = {\"type\":\"x\"}"));
  CHECK_THAT(imported.text, Contains("//   mine.py:3: optimizer_config = {\"lr\":"));
  CHECK_THAT(imported.text, Contains("//   mine.py:4: batch = 4"));
  CHECK(parse_scenario(imported.text, "mine.json").model_config.hidden_size == 64);
}

TEST_CASE("one dictionary of sections is taken apart") {
  const ImportedScenario imported = import_python(
      "config = {'model_config': {'num_layers': 2}, 'data': {'files': ['a', 'b']}, 'other': 1}\n",
      "c.py");
  CHECK(imported.kept == 2);
  const Scenario s = parse_scenario(imported.text, "c.json");
  CHECK(s.model_config.num_layers == 2);
  CHECK(s.data.files.size() == 2);
  CHECK_THAT(imported.text, Contains("c.py:1: config.other = 1"));
}

TEST_CASE("values that are wrong for a scenario are taken over and told") {
  const ImportedScenario imported = import_python(
      "distributed_config = {'world_size': 4, 'distributed_backend': 'gloo'}\n", "d.py");
  CHECK(imported.kept == 2);
  CHECK_THAT(imported.text, Contains("\"distributed_backend\": \"gloo\""));
  CHECK_THAT(imported.problems, Contains("must be one of: nccl"));
  CHECK_THROWS_WITH(import_python("x = 1\n", "none.py"), Contains("no literal dictionary"));
}

TEST_CASE("damaged listings never crash and lose nothing in silence") {
  uint64_t state = 99;
  const auto draw = [&state](uint64_t n) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 33) % n;
  };
  const std::string alphabet = "{}[](),:\"'\\#=;0123456789.eEx_-+ \n\tTN\x01\xFF";
  for (int trial = 0; trial < 3000; ++trial) {
    std::string text = kListing;
    for (uint64_t edits = 1 + draw(6); edits > 0; --edits) {
      const size_t at = draw(text.size());
      if (draw(2))
        text[at] = alphabet[draw(alphabet.size())];
      else
        text.erase(at, 1 + draw(12));
    }
    try {
      const ImportedScenario imported = import_python(text, "t.py");
      CHECK(imported.kept + imported.left_out.size() > 0);
    } catch (const Error& error) {
      CHECK_THAT(error.what(), StartsWith("t.py:"));
    }
  }
}
