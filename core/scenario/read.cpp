#include "core/scenario/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/base/error.h"
#include "core/scenario/keys.h"
#include "core/scenario/rules.h"
#include "core/scenario/source.h"

namespace moetwin {
namespace {

bool within(const Bounds& b, double x) {
  if (b.minimum && (b.exclusive_minimum ? !(x > *b.minimum) : !(x >= *b.minimum))) return false;
  if (b.maximum && (b.exclusive_maximum ? !(x < *b.maximum) : !(x <= *b.maximum))) return false;
  return true;
}

bool is_number(const Json::Value& value) { return value.isNumeric() && !value.isBool(); }

// Stores `value` through a member of each type; false where it is of the wrong type or out of
// range.
struct Store {
  const Key& key;
  const Json::Value& value;
  Scenario& scenario;

  bool chosen(const std::string& text) const {
    return key.choices.empty() ||
           std::find(key.choices.begin(), key.choices.end(), text) != key.choices.end();
  }
  bool operator()(const Member<int64_t>& member) const {
    if (!is_number(value) || !value.isInt64()) return false;
    if (!within(key.bounds, static_cast<double>(value.asInt64()))) return false;
    member(scenario) = value.asInt64();
    return true;
  }
  bool operator()(const Member<double>& member) const {
    if (!is_number(value) || !within(key.bounds, value.asDouble())) return false;
    member(scenario) = value.asDouble();
    return true;
  }
  bool operator()(const Member<bool>& member) const {
    if (!value.isBool()) return false;
    member(scenario) = value.asBool();
    return true;
  }
  bool operator()(const Member<std::string>& member) const {
    if (key.integer_allowed && is_number(value) && value.isInt64()) {
      member(scenario) = std::to_string(value.asInt64());
      return true;
    }
    if (!value.isString() || !chosen(value.asString())) return false;
    member(scenario) = value.asString();
    return true;
  }
  bool operator()(const Member<std::optional<double>>& member) const {
    if (value.isNull()) {
      member(scenario).reset();
      return true;
    }
    if (!is_number(value) || !within(key.bounds, value.asDouble())) return false;
    member(scenario) = value.asDouble();
    return true;
  }
  bool operator()(const Member<std::vector<int64_t>>& member) const {
    if (!value.isArray()) return false;
    std::vector<int64_t> list;
    for (const Json::Value& element : value) {
      if (!is_number(element) || !element.isInt64() ||
          !within(key.bounds, static_cast<double>(element.asInt64())))
        return false;
      list.push_back(element.asInt64());
    }
    member(scenario) = list;
    return true;
  }
  bool operator()(const Member<std::vector<std::string>>& member) const {
    if (!value.isArray()) return false;
    std::vector<std::string> list;
    for (const Json::Value& element : value) {
      if (!element.isString() || !chosen(element.asString())) return false;
      list.push_back(element.asString());
    }
    member(scenario) = list;
    return true;
  }
  bool operator()(const Member<Texts>& member) const {
    if (!value.isObject()) return false;
    Texts texts;
    for (const std::string& name : value.getMemberNames()) {
      if (!value[name].isString()) return false;
      texts[name] = value[name].asString();
    }
    member(scenario) = texts;
    return true;
  }
};

class Reader {
 public:
  Reader(const KeyTable& table, Scenario* scenario, Problems* problems)
      : table_(table), scenario_(scenario), problems_(problems) {}

  void read_section(const Json::Value& value, const std::string& path) {
    std::vector<std::string> members = value.getMemberNames();
    std::stable_sort(members.begin(), members.end(), [&](const auto& a, const auto& b) {
      return value[a].getOffsetStart() < value[b].getOffsetStart();
    });
    for (const std::string& member : members)
      read_member(value[member], path.empty() ? member : path + "." + member);
  }

 private:
  void read_member(const Json::Value& value, const std::string& path) {
    if (path == "$schema") return;  // for editors
    if (const Key* key = table_.find_key(path)) {
      if (!std::visit(Store{*key, value, *scenario_}, key->field))
        problems_->error(path, fmt::format("{} must be {}{}", value_text(value), rule_text(*key),
                                           key->unit.empty() ? "" : " (" + key->unit + ")"));
      return;
    }
    const Section* section = table_.find_section(path);
    if (!section) {
      const std::string nearest = nearest_key(table_, path);
      problems_->error(path, fmt::format("unknown key, value {}{}", value_text(value),
                                         nearest.empty() ? "; legal here: " + keys_of(path)
                                                         : "; did you mean " + nearest + "?"));
      return;
    }
    if (value.isNull() && section->set_present) {
      section->set_present(*scenario_, false);
      return;
    }
    if (!value.isObject()) {
      problems_->error(path,
                       fmt::format("{} must be an object {{...}}{}; keys: {}", value_text(value),
                                   section->present ? " or null" : "", keys_of(path + ".")));
      return;
    }
    if (section->set_present) section->set_present(*scenario_, true);
    read_section(value, path);
  }

  // The names of the keys and sections beside `path`.
  std::string keys_of(const std::string& path) const {
    const std::string prefix = path.substr(0, path.rfind('.') + 1);
    std::string names;
    const auto add = [&](const std::string& known) {
      if (known.compare(0, prefix.size(), prefix) != 0) return;
      const std::string name = known.substr(prefix.size());
      if (name.find('.') == std::string::npos) names += (names.empty() ? "" : ", ") + name;
    };
    for (const Key& key : table_.keys) add(key.path);
    for (const Section& section : table_.sections) add(section.path);
    return names;
  }

  const KeyTable& table_;
  Scenario* scenario_;
  Problems* problems_;
};

Scenario read(Source source, const std::string& name, const std::string& path,
              const KeyTable& table, const std::vector<std::string>& overrides,
              std::vector<std::string>* warnings) {
  Problems problems(name);
  for (const std::string& text : overrides) apply_override(text, table, &source, &problems);
  problems.set_places(source.places);
  Scenario scenario;
  scenario.name = std::filesystem::path(name).stem().string();
  scenario.path = path;
  Reader(table, &scenario, &problems).read_section(source.root, "");
  fill_derived_defaults(&scenario, problems);
  check_rules(scenario, &problems);
  problems.throw_errors();
  if (warnings)
    warnings->insert(warnings->end(), problems.warnings().begin(), problems.warnings().end());
  return scenario;
}

}  // namespace

Scenario read_scenario(const std::string& path, const std::vector<std::string>& overrides,
                       std::vector<std::string>* warnings) {
  const KeyTable table = scenario_keys();
  return read(read_source(path, table), path, path, table, overrides, warnings);
}

Scenario parse_scenario(const std::string& text, const std::string& name,
                        const std::vector<std::string>& overrides,
                        std::vector<std::string>* warnings, const std::string& directory) {
  const KeyTable table = scenario_keys();
  const std::string path =
      directory.empty() ? "" : (std::filesystem::path(directory) / name).string();
  return read(read_source_text(text, name, directory, table), name, path, table, overrides,
              warnings);
}

std::string scenario_file(const Scenario& scenario, const std::string& file) {
  const std::filesystem::path directory = std::filesystem::path(scenario.path).parent_path();
  return (directory / file).lexically_normal().string();
}

}  // namespace moetwin
