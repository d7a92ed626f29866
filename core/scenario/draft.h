#pragma once
// A scenario file in the making, from what another program's files say: keys that are taken over,
// and a line for everything that is not.

#include <json/value.h>

#include <string>
#include <vector>

#include "core/scenario/keys.h"

namespace moetwin {

struct ImportedScenario {
  std::string text;                      ///< a scenario file, what was left out as comments on top
  size_t kept = 0;                       ///< keys taken over
  std::vector<std::string> left_out;     ///< "file:line: path = value (reason)"
  std::vector<std::string> differences;  ///< of these, what makes the model compute something else
  std::vector<std::string> notes;  ///< values that are not as they stood: how they were converted
  std::string problems;            ///< what reading `text` as a scenario refuses; empty: valid
};

class ScenarioDraft {
 public:
  ScenarioDraft() : table_(scenario_keys()) {}

  const KeyTable& table() const { return table_; }
  /// `path` is a key of scenarios: "training_config.steps".
  void set(const std::string& path, const Json::Value& value);
  /// A section that is there, with or without keys.
  void open(const std::string& path);
  /// Null where it is not set.
  const Json::Value& get(const std::string& path) const;
  bool has(const std::string& path) const { return !get(path).isNull(); }
  bool empty() const { return tree_.empty(); }

  /// `what` as it stood, with its place.
  void leave(std::string what, const std::string& reason);
  /// The same for what makes the model another one, so that its weights have no meaning here.
  void differ(const std::string& what, const std::string& reason);
  void note(const std::string& line) { notes_.push_back(line); }

  /// `name`: of the file it is imported from. Reads the text as a scenario.
  ImportedScenario finish(const std::string& name) const;

 private:
  Json::Value& place(const std::string& path);
  std::string object(const Json::Value& value, const std::string& path, int depth) const;

  KeyTable table_;
  Json::Value tree_{Json::objectValue};
  size_t kept_ = 0;
  std::vector<std::string> left_out_, differences_, notes_;
};

/// Compact JSON.
std::string one_line(const Json::Value& value);

}  // namespace moetwin
