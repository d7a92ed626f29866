#include "cli/proxy.h"

#include <fmt/format.h>
#include <json/reader.h>

#include <filesystem>
#include <fstream>
#include <ostream>
#include <sstream>

#include "analysis/batch/processes.h"
#include "core/base/error.h"
#include "core/record/json_text.h"
#include "core/scenario/read.h"

namespace moetwin {
namespace {

uint64_t fnv1a(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

bool finished(const std::string& directory) {
  std::ifstream in(directory + "/report.json");
  Json::Value report;
  std::string errors;
  return in && Json::parseFromStream(Json::CharReaderBuilder(), in, &report, &errors) &&
         report["steps_done"] == report["steps_asked"] &&
         std::filesystem::exists(directory + "/routing.csv");
}

}  // namespace

void train_proxy(Scenario& scenario, const Output& output, bool quiet) {
  RoutingConfig& routing = scenario.routing;
  const std::string source =
      routing.source == "learned" && scenario.training_config.numerics == "none"
          ? routing.without_numerics
          : routing.source;
  const std::string file = scenario_file(scenario, routing.scenario);
  if (source != "proxy" || !file.ends_with(".json")) return;
  const Scenario small = read_scenario(file);
  const std::string directory = std::filesystem::absolute(fmt::format(
      "runs/proxy-{}-{:08x}", small.name, fnv1a(json_text(scenario_to_json(small))) >> 32));
  if (!finished(directory)) {
    if (!quiet)
      output.err << fmt::format("training the proxy {}, {} steps, in {}\n", small.name,
                                small.training_config.steps, directory);
    const auto result = run_in_processes(1, [&](size_t) {
      std::ostringstream out, err;
      const int code = run_program({"run", file, "--quiet", "--out", directory}, {out, err});
      if (code != 0)
        throw Error(static_cast<ErrorClass>(code),
                    fmt::format("routing.scenario {}: {}", routing.scenario, err.str()));
      return std::string();
    });
    if (!result[0].ok) throw Error(result[0].error_class, result[0].error);
  }
  routing.scenario = directory;
}

}  // namespace moetwin
