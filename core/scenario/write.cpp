#include "core/scenario/write.h"

#include <algorithm>

#include "core/scenario/read.h"

namespace moetwin {
namespace {

struct ToJson {
  Scenario& scenario;
  Json::Value operator()(const Member<int64_t>& m) const { return Json::Int64(m(scenario)); }
  Json::Value operator()(const Member<double>& m) const { return m(scenario); }
  Json::Value operator()(const Member<bool>& m) const { return m(scenario); }
  Json::Value operator()(const Member<std::string>& m) const { return m(scenario); }
  Json::Value operator()(const Member<std::optional<double>>& m) const {
    return m(scenario) ? Json::Value(*m(scenario)) : Json::Value();
  }
  Json::Value operator()(const Member<std::vector<int64_t>>& m) const {
    Json::Value list(Json::arrayValue);
    for (int64_t element : m(scenario)) list.append(Json::Int64(element));
    return list;
  }
  Json::Value operator()(const Member<std::vector<std::string>>& m) const {
    Json::Value list(Json::arrayValue);
    for (const std::string& element : m(scenario)) list.append(element);
    return list;
  }
  Json::Value operator()(const Member<Texts>& m) const {
    Json::Value texts(Json::objectValue);
    for (const auto& [name, text] : m(scenario)) texts[name] = text;
    return texts;
  }
};

Json::Value* descend(Json::Value* root, const std::string& path) {
  Json::Value* at = root;
  size_t start = 0;
  for (size_t dot; (dot = path.find('.', start)) != std::string::npos; start = dot + 1)
    at = &(*at)[path.substr(start, dot - start)];
  return &(*at)[path.substr(start)];
}

}  // namespace

Json::Value member_to_json(const Key& key, Scenario& scenario) {
  return std::visit(ToJson{scenario}, key.field);
}

Json::Value scenario_to_json(const Scenario& scenario) {
  const KeyTable table = scenario_keys();
  Scenario copy = scenario;
  Json::Value root(Json::objectValue);
  std::vector<std::string> absent;
  for (const Section& section : table.sections) {
    if (section.present && !section.present(copy)) {
      absent.push_back(section.path + ".");
      *descend(&root, section.path) = Json::Value();
    }
  }
  for (const Key& key : table.keys) {
    const bool skip = std::any_of(absent.begin(), absent.end(), [&](const std::string& prefix) {
      return key.path.compare(0, prefix.size(), prefix) == 0;
    });
    if (!skip) *descend(&root, key.path) = member_to_json(key, copy);
  }
  return root;
}

}  // namespace moetwin
