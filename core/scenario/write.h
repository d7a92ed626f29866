#pragma once
// Values of single keys as JSON.

#include <json/value.h>

#include "core/scenario/keys.h"

namespace moetwin {

/// The value of `key` in `scenario`, whose section must be present.
Json::Value member_to_json(const Key& key, Scenario& scenario);

}  // namespace moetwin
