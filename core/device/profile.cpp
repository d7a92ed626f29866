#include "core/device/profile.h"

namespace moetwin {

const char* phase_name(Phase phase) {
  constexpr const char* kNames[] = {"other",    "data",      "forward",
                                    "backward", "recompute", "optimizer"};
  return kNames[static_cast<int>(phase)];
}

const char* activity_name(Activity activity) {
  constexpr const char* kNames[] = {"compute", "all_to_all", "other_communication",
                                    "offload", "host",       "data"};
  return kNames[static_cast<int>(activity)];
}

}  // namespace moetwin
