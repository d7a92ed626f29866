#include "core/scenario/import_python.h"

#include <fmt/format.h>

#include <filesystem>

#include "core/base/error.h"
#include "core/scenario/keys.h"
#include "core/scenario/python_literal.h"

namespace moetwin {
namespace {

class PythonImporter {
 public:
  PythonImporter(const PythonFile& file, const std::string& name, ScenarioDraft* draft)
      : file_(file), name_(std::filesystem::path(name).filename().string()), draft_(draft) {}

  void run() {
    const KeyTable& table = draft_->table();
    for (const PythonAssignment& a : file_.assignments) {
      if (a.name == "name" || !table.find_section(a.name)) {
        if (holds_sections(a.value))
          for (const std::string& member : a.value.getMemberNames())
            take(a.value[member], member, a.name + "." + member);
        else
          leave(a.name, a.value, "no section of a scenario");
      } else {
        take(a.value, a.name, a.name);
      }
    }
    for (const PythonUnread& u : file_.unread)
      leave_line(u.line, u.path.empty() ? u.text : u.path + ": " + u.text, u.reason);
  }

 private:
  bool holds_sections(const Json::Value& value) const {
    if (!value.isObject()) return false;
    for (const std::string& member : value.getMemberNames())
      if (draft_->table().find_section(member)) return true;
    return false;
  }

  // `path` in the scenario, `source` in the Python file.
  void take(const Json::Value& value, const std::string& path, const std::string& source) {
    const KeyTable& table = draft_->table();
    const Section* section = table.find_section(path);
    if (section && value.isObject()) {
      draft_->open(path);
      for (const std::string& inner : value.getMemberNames())
        take(value[inner], path + "." + inner, source + "." + inner);
    } else if (section || table.find_key(path)) {
      draft_->set(path, value);
    } else {
      const std::string nearest = nearest_key(table, path);
      leave(source, value, nearest.empty() ? "unknown key" : "unknown key; near " + nearest);
    }
  }

  void leave(const std::string& source, const Json::Value& value, const std::string& reason) {
    int line = 1;
    for (const auto& [path, at] : file_.lines)
      if (path == source) line = at;
    leave_line(line, source + " = " + one_line(value), reason);
  }

  void leave_line(int line, const std::string& what, const std::string& reason) {
    draft_->leave(fmt::format("{}:{}: {}", name_, line, what), reason);
  }

  const PythonFile& file_;
  const std::string name_;
  ScenarioDraft* draft_;
};

}  // namespace

void import_python(const std::string& text, const std::string& name, ScenarioDraft* draft) {
  const PythonFile file = read_python_literals(text, name);
  PythonImporter(file, name, draft).run();
  if (draft->empty())
    throw Error(ErrorClass::configuration,
                fmt::format("{}: no literal dictionary named as a section of a scenario; legal: "
                            "model_config = {{...}}, distributed_config = {{...}}, "
                            "training_config, data, routing, cluster, memory, output",
                            name));
}

ImportedScenario import_python(const std::string& text, const std::string& name) {
  ScenarioDraft draft;
  import_python(text, name, &draft);
  return draft.finish(name);
}

}  // namespace moetwin
