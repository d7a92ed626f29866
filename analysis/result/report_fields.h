#pragma once
// What report.json holds (schema moetwin-report/1): one row per field. The JSON Schema of reports
// and their reference page are made from it.

#include <json/value.h>

#include <string>
#include <vector>

namespace moetwin {

enum class FieldType : uint8_t { text, integer, number, object };

struct ReportField {
  /// "throughput.mfu"; "[]" stands for each element of a list, "*" for any name: "verdicts[].kind",
  /// "memory.classes.*".
  std::string path;
  FieldType type;
  bool nullable;     ///< null where it is unknown or does not apply
  bool optional;     ///< not there where it does not apply
  std::string unit;  ///< "s", "bytes", "tokens/s", "1" (a ratio); empty: has none
  std::string meaning;
};

/// In the order of the page.
std::vector<ReportField> report_fields();

/// JSON Schema (draft 7) of report.json.
Json::Value report_schema();
std::string report_schema_text();
/// The reference page.
std::string report_fields_markdown();

}  // namespace moetwin
