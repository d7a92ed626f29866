#pragma once
// What is generated from the key table: the JSON Schema that editors complete by, and the reference
// page of the docs.

#include <json/value.h>

#include <string>

namespace moetwin {

/// JSON Schema (draft-07, which editors know best) of a scenario file.
Json::Value scenario_schema();
/// The schema as text, as it is checked in.
std::string scenario_schema_text();

/// docs/scenario-keys.md: every key with type, default, rule and meaning, and the rules between
/// keys.
std::string scenario_keys_markdown();

}  // namespace moetwin
