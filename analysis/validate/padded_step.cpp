#include "analysis/validate/padded_step.h"

#include <algorithm>

#include "analysis/validate/step_run.h"

namespace moetwin {

Prediction padded_step_seconds(const Scenario& scenario, double choices, const MakeCluster& make) {
  const auto by = [&](int64_t k) {
    Scenario s = scenario;
    s.model_config.moe_layer_config.top_k = k;
    return step_seconds(s, make);
  };
  const int64_t few = std::max<int64_t>(1, static_cast<int64_t>(choices));
  Prediction p = by(few);
  if (choices > static_cast<double>(few)) {
    const Prediction more = by(few + 1);
    p.value += (choices - static_cast<double>(few)) * (more.value - p.value);
  }
  return p;
}

}  // namespace moetwin
