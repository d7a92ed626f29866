#include "core/scenario/problems.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace moetwin {
namespace {

bool holds(const std::string& section, const std::string& path) {
  return path.size() > section.size() && path.compare(0, section.size(), section) == 0 &&
         (path[section.size()] == '.' || path[section.size()] == '[');
}

}  // namespace

std::string Problems::placed(const std::string& path, const std::string& message) const {
  // A value without a place of its own (a default) is told at the nearest section that has one.
  std::string at = path;
  while (!at.empty() && !is_set(at)) {
    const size_t cut = at.find_last_of(".[");
    at = cut == std::string::npos ? "" : at.substr(0, cut);
  }
  const std::string place = at.empty() ? name_ : places_.at(at);
  return fmt::format("{}: {}: {}", place, path, message);
}

void Problems::error(const std::string& path, const std::string& message) {
  failed_.insert(path);
  errors_.push_back(placed(path, message));
}

void Problems::error_at(const std::string& place, const std::string& message) {
  errors_.push_back(place + ": " + message);
}

void Problems::warning(const std::string& path, const std::string& message) {
  warnings_.push_back(placed(path, message));
}

bool Problems::failed(const std::string& path) const {
  for (const std::string& bad : failed_)
    if (bad == path || holds(bad, path) || holds(path, bad)) return true;
  return false;
}

void Problems::throw_errors() const {
  if (errors_.empty()) return;
  std::string text = errors_.size() == 1 ? "" : fmt::format("{} errors:\n", errors_.size());
  for (size_t i = 0; i < errors_.size(); ++i) text += (i ? "\n" : "") + errors_[i];
  throw Error(ErrorClass::configuration, text);
}

}  // namespace moetwin
