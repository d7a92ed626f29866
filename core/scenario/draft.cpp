#include "core/scenario/draft.h"

#include <fmt/format.h>
#include <json/writer.h>

#include <filesystem>

#include "core/base/error.h"
#include "core/scenario/read.h"

namespace moetwin {

namespace {

std::string parent_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

// On one line, so that it stays within its comment.
std::string flat(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  return text;
}

}  // namespace

std::string one_line(const Json::Value& value) {
  Json::StreamWriterBuilder builder;
  builder["indentation"] = "";
  builder["emitUTF8"] = true;
  builder["precision"] = 15;
  return Json::writeString(builder, value);
}

Json::Value& ScenarioDraft::place(const std::string& path) {
  Json::Value* at = &tree_;
  for (size_t begin = 0, dot; begin <= path.size(); begin = dot + 1) {
    dot = std::min(path.find('.', begin), path.size());
    at = &(*at)[path.substr(begin, dot - begin)];
  }
  return *at;
}

void ScenarioDraft::set(const std::string& path, const Json::Value& value) {
  require(table_.find_key(path) || table_.find_section(path), "importers know the keys they set");
  Json::Value& at = place(path);
  if (at.isNull()) ++kept_;
  at = value;
}

void ScenarioDraft::open(const std::string& path) {
  Json::Value& at = place(path);
  if (at.isNull()) at = Json::Value(Json::objectValue);
}

const Json::Value& ScenarioDraft::get(const std::string& path) const {
  const Json::Value* at = &tree_;
  for (size_t begin = 0, dot; begin <= path.size(); begin = dot + 1) {
    dot = std::min(path.find('.', begin), path.size());
    const std::string member = path.substr(begin, dot - begin);
    if (!at->isObject() || !at->isMember(member)) return Json::Value::nullSingleton();
    at = &(*at)[member];
  }
  return *at;
}

void ScenarioDraft::leave(std::string what, const std::string& reason) {
  left_out_.push_back(fmt::format("{} ({})", flat(std::move(what)), reason));
}

void ScenarioDraft::differ(const std::string& what, const std::string& reason) {
  leave(what, reason);
  differences_.push_back(left_out_.back());
}

// Members in the order of the key table, lists on one line.
std::string ScenarioDraft::object(const Json::Value& value, const std::string& path,
                                  int depth) const {
  std::vector<std::string> members;
  const auto add = [&](const std::string& known) {
    if (parent_of(known) != path) return;
    const std::string member = known.substr(path.empty() ? 0 : path.size() + 1);
    if (value.isMember(member)) members.push_back(member);
  };
  for (const Key& key : table_.keys) add(key.path);
  for (const Section& section : table_.sections) add(section.path);
  std::string text = "{\n";
  for (size_t i = 0; i < members.size(); ++i) {
    const std::string inner = path.empty() ? members[i] : path + "." + members[i];
    const Json::Value& child = value[members[i]];
    const bool nested = child.isObject() && table_.find_section(inner);
    text += std::string(2 * (static_cast<size_t>(depth) + 1), ' ') + "\"" + members[i] +
            "\": " + (nested ? object(child, inner, depth + 1) : one_line(child)) +
            (i + 1 < members.size() ? ",\n" : "\n");
  }
  return text + std::string(2 * static_cast<size_t>(depth), ' ') + "}";
}

ImportedScenario ScenarioDraft::finish(const std::string& name) const {
  const std::filesystem::path path = name;
  ImportedScenario result;
  result.kept = kept_;
  result.left_out = left_out_;
  result.differences = differences_;
  result.notes = notes_;
  result.text = fmt::format("// Imported from {}.\n", path.filename().string());
  if (!notes_.empty()) result.text += "// Converted:\n";
  for (const std::string& line : notes_) result.text += "//   " + flat(line) + "\n";
  if (!left_out_.empty()) result.text += "// Not taken over, as there is no such key here:\n";
  for (const std::string& line : left_out_) result.text += "//   " + line + "\n";
  result.text += object(tree_, "", 0) + "\n";
  try {
    parse_scenario(result.text, path.stem().string() + ".json");
  } catch (const Error& error) {
    result.problems = error.what();
  }
  return result;
}

}  // namespace moetwin
