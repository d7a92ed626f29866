#pragma once
// The members of a JSON file that an importer takes one by one; what it does not take is left over.

#include <json/value.h>

#include <set>
#include <string>

#include "core/scenario/draft.h"

namespace moetwin {

/// Throws Error(configuration) naming the file when the text is no JSON object.
Json::Value parse_object(const std::string& text, const std::string& name);

class JsonMembers {
 public:
  /// `file` is its name for messages.
  JsonMembers(const Json::Value& root, std::string file, ScenarioDraft* draft)
      : root_(root), file_(std::move(file)), draft_(*draft) {}

  /// The value at a dotted path, taken; null where there is none, or where it is DeepSpeed's
  /// "auto".
  const Json::Value& take(const std::string& path);
  /// Sets a key to the value at a path, where there is one.
  void take(const std::string& path, const std::string& key);
  void leave(const std::string& path, const std::string& reason);
  /// The same for what makes the model another one.
  void differ(const std::string& path, const std::string& reason);
  /// All that was not taken.
  void leave_rest(const std::string& reason);

 private:
  /// "config.json: hidden_act = "relu""
  std::string text_of(const std::string& path) const;
  const Json::Value* at(const std::string& path) const;
  void leave_rest(const Json::Value& value, const std::string& path, const std::string& reason);

  const Json::Value& root_;
  const std::string file_;
  ScenarioDraft& draft_;
  std::set<std::string> taken_;
};

}  // namespace moetwin
