#pragma once
// Collects everything that is wrong with a scenario, so that all of it is told at once.

#include <map>
#include <set>
#include <string>
#include <vector>

namespace moetwin {

/// "file:line" or "--set" of every value that a scenario states, by dotted path.
using Places = std::map<std::string, std::string>;

class Problems {
 public:
  /// `name`: what to call the scenario where a problem has no value to point at.
  explicit Problems(std::string name) : name_(std::move(name)) {}

  void set_places(Places places) { places_ = std::move(places); }
  bool is_set(const std::string& path) const { return places_.count(path) != 0; }

  /// An error about the value at `path`: "place: path: message".
  void error(const std::string& path, const std::string& message);
  /// An error whose place is known otherwise (syntax errors, overrides).
  void error_at(const std::string& place, const std::string& message);
  void warning(const std::string& path, const std::string& message);

  /// Whether an error concerns `path`, a section that holds it, or something inside it.
  bool failed(const std::string& path) const;

  const std::vector<std::string>& errors() const { return errors_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  /// Throws Error(configuration) with all errors, one a line; returns when there are none.
  void throw_errors() const;

 private:
  std::string placed(const std::string& path, const std::string& message) const;

  std::string name_;
  Places places_;
  std::set<std::string> failed_;
  std::vector<std::string> errors_, warnings_;
};

}  // namespace moetwin
