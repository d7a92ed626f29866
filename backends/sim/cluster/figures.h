#pragma once
// A profile's JSON tree, read key by key with the place of each fault. What was never asked for is
// an unknown key.

#include <json/value.h>

#include <set>
#include <string>
#include <vector>

namespace moetwin {

class Figures {
 public:
  /// Parses `text`; syntax errors throw Error(configuration) with file, line and column. A text
  /// where the section `part` should be names a file, `<part>s/<text>.json` beside `file`, whose
  /// content is taken.
  Figures(const std::string& text, const std::string& file, const std::string& part = "");
  /// All of it, with the part in its place.
  const Json::Value& tree() const { return root_; }

  /// What this tree lacks is taken from `base`, key by key; a figure goes as a whole.
  void take_base(const Figures& base);
  /// The tree as JSON text, with what was taken from a base.
  std::string merged_text() const;

  enum class Rule { any, positive, not_negative, fraction };
  /// {"value": n, "source": "..."} at a dotted path; faults are noted and give 0.
  double figure(const std::string& path, Rule rule);
  double figure_or(const std::string& path, Rule rule, double otherwise);
  int64_t count(const std::string& path, int64_t least);
  std::string text_or(const std::string& path, const std::string& otherwise);
  bool has(const std::string& path) const;
  std::string source(const std::string& path) const;
  /// The value at `path` (marked as known with all it holds), or null.
  const Json::Value* any(const std::string& path);
  void fault(const std::string& path, const std::string& message);
  /// Notes unknown keys and throws Error(configuration) with all faults, one a line.
  void finish();

 private:
  const Json::Value* find(const std::string& path) const;
  void note_unknown(const Json::Value& value, const std::string& path);
  struct Source {
    std::string text, file;
  };
  /// Whose text the value at `path` is of.
  const Source& source_of(const std::string& path) const;
  Source whole_, part_;
  std::string part_path_;  ///< of what is in a file of its own; empty: nothing is
  Json::Value root_;
  std::set<std::string> known_;
  std::vector<std::string> faults_;
};

}  // namespace moetwin
