#pragma once
// A comparison as text, Markdown, CSV and JSON.

#include <json/value.h>

#include <string>

#include "analysis/compare/compare.h"

namespace moetwin {

/// A value with its unit: "1.50 ms", "3.00 GiB", "0.0123".
std::string figure_text(const Figure& figure);

std::string comparison_text(const Comparison& comparison);
std::string comparison_markdown(const Comparison& comparison);
/// One row per figure and pair; then nothing else.
std::string comparison_csv(const Comparison& comparison);
Json::Value comparison_json(const Comparison& comparison);

}  // namespace moetwin
