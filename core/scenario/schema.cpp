#include "core/scenario/schema.h"

#include <json/writer.h>

#include "core/scenario/keys.h"
#include "core/scenario/write.h"

namespace moetwin {
namespace {

// Whole numbers without a decimal point, as editors show them.
Json::Value number(double x) {
  const Json::Value value(x);
  return value.isInt64() ? Json::Value(value.asInt64()) : value;
}

void add_bounds(const Bounds& bounds, Json::Value* schema) {
  if (bounds.minimum)
    (*schema)[bounds.exclusive_minimum ? "exclusiveMinimum" : "minimum"] = number(*bounds.minimum);
  if (bounds.maximum)
    (*schema)[bounds.exclusive_maximum ? "exclusiveMaximum" : "maximum"] = number(*bounds.maximum);
}

Json::Value types(std::initializer_list<const char*> names) {
  if (names.size() == 1) return *names.begin();
  Json::Value list(Json::arrayValue);
  for (const char* name : names) list.append(name);
  return list;
}

struct TypeOf {
  const Key& key;
  Json::Value plain(std::initializer_list<const char*> names) const {
    Json::Value schema(Json::objectValue);
    schema["type"] = types(names);
    add_bounds(key.bounds, &schema);
    for (const std::string& choice : key.choices) schema["enum"].append(choice);
    return schema;
  }
  Json::Value list(const char* element) const {
    Json::Value schema(Json::objectValue);
    schema["type"] = "array";
    schema["items"] = plain({element});
    for (const std::string& choice : key.choices) schema["items"]["enum"].append(choice);
    return schema;
  }
  Json::Value operator()(const Member<int64_t>&) const { return plain({"integer"}); }
  Json::Value operator()(const Member<double>&) const { return plain({"number"}); }
  Json::Value operator()(const Member<bool>&) const { return plain({"boolean"}); }
  Json::Value operator()(const Member<std::string>&) const {
    return key.integer_allowed ? plain({"string", "integer"}) : plain({"string"});
  }
  Json::Value operator()(const Member<std::optional<double>>&) const {
    return plain({"number", "null"});
  }
  Json::Value operator()(const Member<std::vector<int64_t>>&) const { return list("integer"); }
  Json::Value operator()(const Member<std::vector<std::string>>&) const { return list("string"); }
  Json::Value operator()(const Member<Texts>&) const {
    Json::Value schema = plain({"object"});
    schema["additionalProperties"]["type"] = "string";
    return schema;
  }
};

std::string described(const Key& key) {
  return key.unit.empty() ? key.description : key.description + " In " + key.unit + ".";
}

// The properties of the section at a dotted path; "" is the root.
Json::Value& properties_at(Json::Value& root, const std::string& path) {
  Json::Value* at = &root;
  for (size_t start = 0; start < path.size();) {
    const size_t dot = std::min(path.find('.', start), path.size());
    at = &(*at)["properties"][path.substr(start, dot - start)];
    start = dot + 1;
  }
  return (*at)["properties"];
}

Json::Value object_schema(const std::string& description, bool or_null) {
  Json::Value schema(Json::objectValue);
  schema["type"] = or_null ? types({"object", "null"}) : types({"object"});
  schema["description"] = description;
  schema["additionalProperties"] = false;
  schema["properties"] = Json::Value(Json::objectValue);
  return schema;
}

Json::Value text_schema(const char* description) {
  Json::Value schema(Json::objectValue);
  schema["type"] = "string";
  schema["description"] = description;
  return schema;
}

}  // namespace

Json::Value scenario_schema() {
  const KeyTable table = scenario_keys();
  Scenario defaults = scenario_with_all_sections(table);
  Json::Value root = object_schema("What moetwin runs.", false);
  root["$schema"] = "http://json-schema.org/draft-07/schema#";
  root["title"] = "moetwin scenario";
  root["properties"]["$schema"] = text_schema("Where editors find this schema; not read.");
  root["properties"]["extends"] =
      text_schema("Another scenario file, relative to this one's directory; values here win.");
  for (const Section& section : table.sections) {
    const size_t dot = section.path.rfind('.');
    const std::string parent = dot == std::string::npos ? "" : section.path.substr(0, dot);
    properties_at(root, parent)[section.path.substr(dot + 1)] =
        object_schema(section.description, section.present != nullptr);
  }
  for (const Key& key : table.keys) {
    const size_t dot = key.path.rfind('.');
    Json::Value schema = std::visit(TypeOf{key}, key.field);
    schema["description"] = described(key);
    schema["default"] = member_to_json(key, defaults);
    properties_at(
        root, dot == std::string::npos ? "" : key.path.substr(0, dot))[key.path.substr(dot + 1)] =
        schema;
  }
  return root;
}

std::string scenario_schema_text() {
  Json::StreamWriterBuilder builder;
  builder["indentation"] = "  ";
  builder["emitUTF8"] = true;
  builder["precision"] = 15;
  return Json::writeString(builder, scenario_schema()) + "\n";
}

}  // namespace moetwin
