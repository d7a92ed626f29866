#include "analysis/result/csv_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/result/lines.h"
#include "core/base/error.h"

namespace moetwin {

namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

}  // namespace

CsvTable::CsvTable(const std::string& path) : path_(path) {
  const MappedFile file(path);
  for_each_line(file, [&](std::string_view line, int64_t number) {
    const auto fields = static_cast<size_t>(std::count(line.begin(), line.end(), ',')) + 1;
    if (number == 1) {
      while (names_.size() < fields) names_.emplace_back(next_field(line));
      for (size_t i = 0; i < fields; ++i) index_[names_[i]] = i;
      columns_.resize(fields);
      return;
    }
    if (fields != names_.size())
      throw Error(ErrorClass::configuration, fmt::format("{}:{}: has {} fields, the header {}",
                                                         path, number, fields, names_.size()));
    for (size_t i = 0; i < fields; ++i) {
      const std::string_view field = next_field(line);
      double value = kUnknown;
      if (!field.empty() && !read_number(field, value))
        throw Error(ErrorClass::configuration,
                    fmt::format("{}:{}: {} is no number: \"{}\"", path, number, names_[i], field));
      columns_[i].push_back(value);
    }
    ++rows_;
  });
}

const std::vector<double>& CsvTable::column(const std::string& name) const {
  const auto found = index_.find(name);
  if (found == index_.end())
    throw Error(ErrorClass::configuration, fmt::format("{}: has no column {}; it has {}", path_,
                                                       name, fmt::join(names_, ", ")));
  return columns_[found->second];
}

std::vector<double> CsvTable::column_or_nan(const std::string& name) const {
  return has(name) ? column(name) : std::vector<double>(rows_, kUnknown);
}

}  // namespace moetwin
