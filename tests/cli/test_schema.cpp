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
