#include <json/writer.h>

#include <catch2/catch.hpp>
#include <set>

#include "core/scenario/keys.h"
#include "core/scenario/source.h"
#include "core/scenario/write.h"
#include "tests/core/scenario/texts.h"

using namespace moetwin;
using Catch::Matchers::Contains;

namespace {

// "a.b.c" = value as the text of a scenario.
std::string nested(const std::string& path, const std::string& value) {
  std::string text = value, rest = path;
  for (size_t dot; (dot = rest.rfind('.')) != std::string::npos; rest = rest.substr(0, dot))
    text = "{\"" + rest.substr(dot + 1) + "\": " + text + "}";
  return "{\"" + rest + "\": " + text + "}";
}

std::string compact(const Json::Value& value) {
  Json::StreamWriterBuilder builder;
  builder["indentation"] = "";
  return Json::writeString(builder, value);
}

// A legal value of the key that differs from `now`.
Json::Value other_value(const Key& key, const Json::Value& now) {
  if (now.isBool()) return !now.asBool();
  if (!key.choices.empty() && now.isArray()) {
    Json::Value list(Json::arrayValue);
    if (now.size() != 1) list.append(key.choices.back());
    return list;
  }
  if (!key.choices.empty())
    return key.choices[0] == now.asString() ? key.choices.back() : key.choices[0];
  const double low = key.bounds.minimum.value_or(0), high = key.bounds.maximum.value_or(low + 1000);
  switch (key.field.index()) {
    case 0:
      return Json::Int64(now.asInt64() + 1 <= high ? now.asInt64() + 1 : now.asInt64() - 1);
    case 1:
    case 4:
      return now.isNull() ? low + 0.1
                          : now.asDouble() + (high - low) / 1024 * (now.asDouble() < high ? 1 : -1);
    case 3:
      return now.asString() + "x";
    case 5: {
      Json::Value list(Json::arrayValue);
      list.append(Json::Int64(3)), list.append(Json::Int64(7));
      return list;
    }
    case 7: {
      Json::Value texts(Json::objectValue);
      texts["NCCL_ALGO"] = "Ring", texts["NCCL_DEBUG"] = "INFO";
      return texts;
    }
    default: {
      Json::Value list(Json::arrayValue);
      list.append("a/*.txt"), list.append("b \"quoted\" \xE6\xBC\xA2.txt");
      return list;
    }
  }
}

void set_at(Json::Value* root, const std::string& path, const Json::Value& value) {
  Json::Value* at = root;
  size_t start = 0;
  for (size_t dot; (dot = path.find('.', start)) != std::string::npos; start = dot + 1)
    at = &(*at)[path.substr(start, dot - start)];
  (*at)[path.substr(start)] = value;
}

}  // namespace

TEST_CASE("paths are unique, described, and stand in a section of the table") {
  const KeyTable table = scenario_keys();
  std::set<std::string> seen;
  CHECK(table.keys.size() > 100);
  for (const Key& key : table.keys) {
    INFO(key.path);
    CHECK(seen.insert(key.path).second);
    CHECK(key.description.size() > 8);
    CHECK(key.description.back() == '.');
    if (const size_t dot = key.path.rfind('.'); dot != std::string::npos)
      CHECK(table.find_section(key.path.substr(0, dot)) != nullptr);
  }
  for (const Section& section : table.sections) CHECK(seen.insert(section.path).second);
}

TEST_CASE("a wrong type for any key is one error that names it") {
  const KeyTable table = scenario_keys();
  for (const Key& key : table.keys) {
    const char* object = key.field.index() == 7 ? "{\"NCCL_DEBUG\": 1}" : "{}";
    for (const char* wrong : {object, "[[]]", key.field.index() == 2 ? "1" : "true"}) {
      const std::string message = refusal(nested(key.path, wrong));
      INFO(key.path << " = " << wrong << ": " << message);
      CHECK(lines_in(message) == 1);
      CHECK_THAT(message, Contains("test.json:1: " + key.path + ": ") && Contains("must be"));
    }
  }
  for (const Section& section : table.sections) {
    const std::string message = refusal(nested(section.path, "7"));
    CHECK(lines_in(message) == 1);
    CHECK_THAT(message, Contains(section.path + ": 7 must be an object"));
  }
}

TEST_CASE("every limit of every key is enforced on both sides") {
  const KeyTable table = scenario_keys();
  for (const Key& key : table.keys) {
    const bool list = key.field.index() == 5, integer = list || key.field.index() == 0;
    const auto text = [&](double x) {
      const Json::Value number = integer ? Json::Value(Json::Int64(x)) : Json::Value(x);
      return list ? "[" + compact(number) + "]" : compact(number);
    };
    const auto out_of_range = [&](double x) {
      INFO(key.path << " = " << x);
      CHECK_THAT(refusal(nested(key.path, text(x))),
                 Contains(key.path + ": ") && Contains("must be"));
    };
    const auto in_range = [&](double x) {
      INFO(key.path << " = " << x);
      CHECK_THAT(refusal(nested(key.path, text(x))), !Contains(" must be "));
    };
    const double step = integer ? 1 : 1e-6;
    if (key.bounds.minimum) {
      out_of_range(*key.bounds.minimum - step);
      (key.bounds.exclusive_minimum ? out_of_range(*key.bounds.minimum)
                                    : in_range(*key.bounds.minimum));
    }
    if (key.bounds.maximum) {
      out_of_range(*key.bounds.maximum + step);
      (key.bounds.exclusive_maximum ? out_of_range(*key.bounds.maximum)
                                    : in_range(*key.bounds.maximum));
    }
  }
}

TEST_CASE("a scenario survives being written and read") {
  const KeyTable table = scenario_keys();
  // Every key at a value that is not its default. Rules between keys are not at issue here, so each
  // key is changed alone, on a scenario in which that is legal.
  const std::string base = R"({"model_config": {"moe_layer_config": {"num_experts": 12}},
      "training_config": {"numerics": "none", "steps": 50, "global_batch_size": 72},
      "routing": {"trace_file": "t.csv"}})";
  Scenario scenario = parse_scenario(base, "base.json");
  for (const Section& section : table.sections)
    if (section.set_present) section.set_present(scenario, true);
  const Json::Value start = scenario_to_json(scenario);
  int changed = 0;
  for (const Key& key : table.keys) {
    Json::Value json = start;
    set_at(&json, key.path, other_value(key, member_to_json(key, scenario)));
    Scenario read;
    try {
      read = parse_scenario(compact(json), "base.json");
    } catch (const Error& error) {
      // Only a rule between keys may refuse it, never the key's own rule.
      INFO(key.path << ": " << error.what());
      CHECK_THAT(error.what(), !Contains(" must be ") && !Contains("unknown key"));
      continue;
    }
    ++changed;
    INFO(key.path);
    CHECK(compact(scenario_to_json(read)) == compact(json));
  }
  CHECK(changed > 100);
}

TEST_CASE("sections that may be absent are written as null and read back") {
  const Scenario s = parse_scenario(kSeedScenario, "seed.json");
  const Json::Value json = scenario_to_json(s);
  CHECK(json["training_config"]["router"]["schedule"].isNull());
  CHECK(json["model_config"]["moe_layer_config"]["capacity_factor"].isNull());
  CHECK(json["model_config"]["hidden_size"].asInt() == 4096);
  CHECK(compact(scenario_to_json(parse_scenario(compact(json), "seed.json"))) == compact(json));
}

TEST_CASE("no prefix of a scenario crashes the reader", "[P213]") {
  for (size_t length = 0; length < kSeedScenario.size(); ++length) {
    const std::string message = refusal(kSeedScenario.substr(0, length));
    INFO(length << ": " << message);
    CHECK_THAT(message, Catch::Matchers::StartsWith("test.json:"));
  }
}

TEST_CASE("damaged scenarios never crash and always say where", "[P213]") {
  uint64_t state = 12345;
  const auto draw = [&state](uint64_t n) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 33) % n;
  };
  const std::string alphabet = "{}[],:\"\\/*0123456789.eE+-truefalsn \n\x01\xFF";
  for (int trial = 0; trial < 2000; ++trial) {
    std::string text = kSeedScenario;
    for (uint64_t edits = 1 + draw(4); edits > 0; --edits) {
      const size_t at = draw(text.size());
      if (draw(2))
        text[at] = alphabet[draw(alphabet.size())];
      else
        text.erase(at, 1 + draw(8));
    }
    const std::string message = refusal(text);
    if (message != "accepted") CHECK_THAT(message, Contains("test.json"));
  }
}
