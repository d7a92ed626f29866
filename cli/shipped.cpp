#include "cli/shipped.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/base/error.h"

namespace moetwin {

namespace fs = std::filesystem;

namespace {

void add_directory(const fs::path& directory, std::vector<std::string>& found) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) return;
  const std::string path = fs::weakly_canonical(directory).string();
  if (std::find(found.begin(), found.end(), path) == found.end()) found.push_back(path);
}

std::vector<std::string> names_in(const std::vector<std::string>& directories) {
  std::vector<std::string> names;
  for (const std::string& directory : directories)
    for (const fs::directory_entry& entry : fs::directory_iterator(directory))
      if (entry.path().extension() == ".json" &&
          entry.path().stem().extension() != ".schema")  // scenario.schema.json
        names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace

std::vector<std::string> shipped_scenario_directories() {
  std::vector<std::string> found;
  add_directory(MOETWIN_SOURCE_SCENARIOS,
                found);  // the tree this program was built from, if it is still there
  std::error_code no_proc;
  const fs::path program = fs::read_symlink("/proc/self/exe", no_proc);
  if (!no_proc)
    add_directory(program.parent_path().parent_path() / "share" / "moetwin" / "scenarios", found);
  return found;
}

std::vector<std::string> shipped_directories(const Scenario& scenario, const std::string& kind) {
  std::vector<std::string> found;
  if (!scenario.path.empty()) add_directory(fs::path(scenario.path).parent_path() / kind, found);
  for (const std::string& directory : shipped_scenario_directories())
    add_directory(fs::path(directory) / kind, found);
  return found;
}

std::string find_scenario(const std::string& file) {
  std::error_code ignored;
  const fs::path path(file);
  if (path.is_absolute() || fs::exists(path, ignored)) return file;
  const std::vector<std::string> directories = shipped_scenario_directories();
  fs::path name = path;
  if (name.begin() != name.end() && *name.begin() == "scenarios")
    name = name.lexically_relative("scenarios");
  for (const std::string& directory : directories)
    for (const char* ending : {"", ".json"}) {
      const fs::path shipped = fs::path(directory) / (name.string() + ending);
      if (fs::is_regular_file(shipped, ignored)) return shipped.string();
    }
  throw Error(
      ErrorClass::configuration,
      fmt::format("{}: there is no such file, and no shipped scenario of that name; shipped: {}",
                  file, fmt::join(names_in(directories), ", ")));
}

}  // namespace moetwin
