#include <json/reader.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "core/scenario/keys.h"
#include "core/scenario/schema.h"
#include "tests/cli/run.h"

using namespace moetwin;

namespace {

std::string checked_in(const std::string& name) {
  std::ifstream file(std::string(MOETWIN_SOURCE_ROOT) + "/" + name);
  REQUIRE(file);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("the checked-in schema is current: moetwin schema > scenarios/scenario.schema.json") {
  const Ran ran = run({"schema"});
  CHECK(ran.code == 0);
  CHECK((ran.out == checked_in("scenarios/scenario.schema.json")));
}

TEST_CASE("the checked-in key page is current: moetwin schema --markdown > docs/scenario-keys.md") {
  const Ran ran = run({"schema", "--markdown"});
  CHECK(ran.code == 0);
  CHECK((ran.out == checked_in("docs/scenario-keys.md")));
}

TEST_CASE("the pictures of the docs are current") {
  const Folder folder("docs-pictures");
  const auto drawn = [&](const std::vector<std::string>& sizes) {
    std::vector<std::string> arguments = {
        "topology", MOETWIN_SOURCE_ROOT "/scenarios/seed-high-dp.json",
        "--svg",    folder.file("out.svg"),
        "--set",    "name=layout"};
    for (const std::string& size : sizes) {
      arguments.push_back("--set");
      arguments.push_back("distributed_config." + size);
    }
    REQUIRE(run(arguments).code == 0);
    return folder.read("out.svg");
  };
  CHECK((drawn({"world_size=8", "data_parallel_size=4"}) == checked_in("docs/layout-dp4-ep2.svg")));
  CHECK((drawn({"data_parallel_size=2", "expert_parallel_size=8"}) ==
         checked_in("docs/layout-dp2-ep8.svg")));
}

TEST_CASE("the schema has every key with its limits and default") {
  const Json::Value schema = scenario_schema();
  const Json::Value& model = schema["properties"]["model_config"]["properties"];
  CHECK(model["hidden_size"]["type"] == "integer");
  CHECK(model["hidden_size"]["minimum"] == 1);
  CHECK(model["hidden_size"]["default"] == 256);
  CHECK(model["dropout"]["exclusiveMaximum"] == 1);
  CHECK(model["normalization"]["enum"].size() == 2);
  CHECK(model["moe_layer_config"]["properties"]["capacity_factor"]["type"].size() == 2);
  CHECK(model["moe_layer_config"]["properties"]["capacity_factor"]["exclusiveMinimum"] == 0);
  CHECK_FALSE(schema["additionalProperties"].asBool());
  size_t keys = 0;
  const std::function<void(const Json::Value&)> walk = [&](const Json::Value& object) {
    for (const Json::Value& property : object["properties"])
      if (property.isMember("properties"))
        walk(property);
      else
        ++keys;
  };
  walk(schema);
  CHECK(keys == scenario_keys().keys.size() + 2);  // and $schema, extends
  const std::string page = scenario_keys_markdown();
  for (const Key& key : scenario_keys().keys)
    CHECK(page.find("`" + key.path.substr(key.path.rfind('.') + 1) + "`") != std::string::npos);
}
