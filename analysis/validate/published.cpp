#include "analysis/validate/published.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "core/base/csv.h"
#include "core/base/error.h"
#include "core/base/files.h"

namespace moetwin {

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

const std::string& PublishedRow::text(const std::string& column) const {
  static const std::string kEmpty;
  const auto found = header_->find(column);
  return found == header_->end() || found->second >= fields_.size() ? kEmpty
                                                                    : fields_[found->second];
}

bool PublishedRow::mentions(const std::string& column, const std::string& part) const {
  return lower_case(text(column)).find(lower_case(part)) != std::string::npos;
}

std::optional<double> PublishedRow::number(const std::string& column) const {
  const std::string& field = text(column);
  if (field.empty()) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size() || !std::isfinite(value))
    throw UnreadableField(
        fmt::format("unreadable: {}: {} \"{}\" is no number", place_, column, field));
  return value;
}

int64_t PublishedRow::whole(const std::string& column, int64_t otherwise) const {
  const std::optional<double> value = number(column);
  if (!value) return otherwise;
  if (*value < 0 || *value != std::floor(*value) || *value > 9e15)
    throw UnreadableField(
        fmt::format("unreadable: {}: {} \"{}\" is no whole number", place_, column, text(column)));
  return static_cast<int64_t>(*value);
}

PublishedRow PublishedRow::with(const std::map<std::string, std::string>& values) const {
  PublishedRow row = *this;
  for (const auto& [column, value] : values) {
    const auto found = header_->find(column);
    if (found == header_->end()) continue;
    if (row.fields_.size() <= found->second) row.fields_.resize(found->second + 1);
    row.fields_[found->second] = value;
  }
  return row;
}

std::vector<PublishedRow> read_published(const std::string& path,
                                         const std::vector<std::string>& columns) {
  const MappedFile file(path);
  const std::vector<CsvRecord> records =
      csv_records({reinterpret_cast<const char*>(file.data()), static_cast<size_t>(file.size())});
  if (records.empty())
    throw Error(ErrorClass::configuration, fmt::format("{}: has no header line", path));
  auto header = std::make_shared<PublishedRow::Header>();
  const std::vector<std::string>& names = records.front().fields;
  for (size_t i = 0; i < names.size(); ++i) header->emplace(names[i], i);
  for (const std::string& column : columns)
    if (!header->count(column))
      throw Error(ErrorClass::configuration,
                  fmt::format("{}: has no column \"{}\"; needed: {}; it has: {}", path, column,
                              fmt::join(columns, ", "), fmt::join(names, ", ")));
  const std::string name = std::filesystem::path(path).filename().string();
  std::vector<PublishedRow> rows;
  for (size_t i = 1; i < records.size(); ++i) {
    if (records[i].fields.size() > names.size())
      throw Error(ErrorClass::configuration,
                  fmt::format("{}:{}: has {} fields, the header {}", path, records[i].line,
                              records[i].fields.size(), names.size()));
    rows.emplace_back(header, records[i].fields, fmt::format("{}:{}", name, records[i].line));
  }
  return rows;
}

}  // namespace moetwin
