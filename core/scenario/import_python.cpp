#include "core/scenario/import_python.h"

#include <fmt/format.h>
#include <json/writer.h>

#include <filesystem>
#include <map>

#include "core/base/error.h"
#include "core/scenario/keys.h"
#include "core/scenario/python_literal.h"
#include "core/scenario/read.h"

namespace moetwin {
namespace {

std::string one_line(const Json::Value& value) {
  Json::StreamWriterBuilder builder;
  builder["indentation"] = "";
  builder["emitUTF8"] = true;
  builder["precision"] = 15;
  return Json::writeString(builder, value);
}

class Importer {
 public:
  Importer(const PythonFile& file, const std::string& name, ImportedScenario* result)
      : file_(file), name_(name), result_(result), table_(scenario_keys()) {}

  void run() {
    for (const PythonAssignment& a : file_.assignments) {
      if (a.name == "name" || !table_.find_section(a.name)) {
        if (holds_sections(a.value))
          for (const std::string& member : a.value.getMemberNames())
            take(a.value[member], member, a.name + "." + member, &tree_);
        else
          leave(a.name, a.value, "no section of a scenario");
      } else {
        take(a.value, a.name, a.name, &tree_);
      }
    }
    for (const PythonUnread& u : file_.unread)
      leave_line(u.line, u.path.empty() ? u.text : u.path + ": " + u.text, u.reason);
  }

  bool empty() const { return tree_.empty(); }

  std::string text() const {
    std::string text =
        fmt::format("// Imported from {}.\n", std::filesystem::path(name_).filename().string());
    if (!result_->left_out.empty()) text += "// Not taken over, as there is no such key here:\n";
    for (const std::string& line : result_->left_out) text += "//   " + line + "\n";
    return text + object(tree_, "", 0) + "\n";
  }

 private:
  bool holds_sections(const Json::Value& value) const {
    if (!value.isObject()) return false;
    for (const std::string& member : value.getMemberNames())
      if (table_.find_section(member)) return true;
    return false;
  }

  // `path` in the scenario, `source` in the Python file.
  void take(const Json::Value& value, const std::string& path, const std::string& source,
            Json::Value* into) {
    const std::string member = path.substr(path.rfind('.') + 1);
    const Section* section = table_.find_section(path);
    if (section && value.isObject()) {
      Json::Value& object = (*into)[member] = Json::Value(Json::objectValue);
      for (const std::string& inner : value.getMemberNames())
        take(value[inner], path + "." + inner, source + "." + inner, &object);
    } else if (section || table_.find_key(path)) {
      (*into)[member] = value;
      ++result_->kept;
    } else {
      const std::string nearest = nearest_key(table_, path);
      leave(source, value, nearest.empty() ? "unknown key" : "unknown key; near " + nearest);
    }
  }

  void leave(const std::string& source, const Json::Value& value, const std::string& reason) {
    int line = 1;
    for (const auto& [path, at] : file_.lines)
      if (path == source) line = at;
    leave_line(line, source + " = " + one_line(value), reason);
  }

  void leave_line(int line, std::string what, const std::string& reason) {
    // On one line, so that it stays within its comment.
    for (char& c : what)
      if (static_cast<unsigned char>(c) < ' ') c = ' ';
    const std::string file = std::filesystem::path(name_).filename().string();
    result_->left_out.push_back(fmt::format("{}:{}: {} ({})", file, line, what, reason));
  }

  // Members in the order of the key table, lists on one line.
  std::string object(const Json::Value& value, const std::string& path, int depth) const {
    std::vector<std::string> members;
    const auto add = [&](const std::string& known) {
      const size_t dot = known.rfind('.');
      if ((dot == std::string::npos ? "" : known.substr(0, dot)) != path) return;
      const std::string member = known.substr(dot + 1);
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

  const PythonFile& file_;
  const std::string& name_;
  ImportedScenario* result_;
  KeyTable table_;
  Json::Value tree_{Json::objectValue};
};

}  // namespace

ImportedScenario import_python(const std::string& text, const std::string& name) {
  const PythonFile file = read_python_literals(text, name);
  ImportedScenario result;
  Importer importer(file, name, &result);
  importer.run();
  if (importer.empty())
    throw Error(ErrorClass::configuration,
                fmt::format("{}: no literal dictionary named as a section of a scenario; legal: "
                            "model_config = {{...}}, distributed_config = {{...}}, "
                            "training_config, data, routing, cluster, memory, output",
                            name));
  result.text = importer.text();
  try {
    parse_scenario(result.text, std::filesystem::path(name).stem().string() + ".json");
  } catch (const Error& error) {
    result.problems = error.what();
  }
  return result;
}

}  // namespace moetwin
