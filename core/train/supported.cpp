#include "core/train/supported.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace moetwin {

void check_supported(const Scenario& s) {
  std::string problems;
  const auto refuse = [&](const std::string& key, const std::string& value, const char* legal) {
    problems += fmt::format("{}{}: {}: not built yet in the trainer; legal here: {}",
                            problems.empty() ? "" : "\n", key, value, legal);
  };
  if (s.cluster.fidelity == "representative")
    refuse("cluster.fidelity", "representative", "fluid, flow");
  if (!problems.empty()) throw Error(ErrorClass::configuration, problems);
}

}  // namespace moetwin
