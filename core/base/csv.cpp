#include "core/base/csv.h"

#include <utility>

namespace moetwin {

std::vector<CsvRecord> csv_records(const std::string& text) {
  std::vector<CsvRecord> records;
  CsvRecord now;
  std::string field;
  bool quoted = false, any = false;
  int64_t line = 1;
  const auto end_record = [&] {
    if (any || !field.empty()) {
      now.fields.push_back(std::move(field));
      records.push_back(std::move(now));
    }
    field.clear();
    now = {};
    any = false;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (quoted) {
      if (c == '"' && i + 1 < text.size() && text[i + 1] == '"')
        field += text[++i];
      else if (c == '"')
        quoted = false;
      else
        field += c;
    } else if (c == '"') {
      quoted = any = true;
    } else if (c == ',') {
      now.fields.push_back(std::move(field));
      field.clear();
      any = true;
    } else if (c == '\n') {
      end_record();
      now.line = line;
    } else if (c != '\r') {
      field += c;
    }
  }
  end_record();
  return records;
}

}  // namespace moetwin
