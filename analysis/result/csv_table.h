#pragma once
// A CSV file of numbers under a header, such as steps.csv and probe.csv, by column.

#include <map>
#include <string>
#include <vector>

namespace moetwin {

class CsvTable {
 public:
  CsvTable() = default;
  /// Empty fields are NaN. Throws Error(configuration) naming file and line when the file cannot be
  /// read, a line has another number of fields than the header or a field is no number.
  explicit CsvTable(const std::string& path);

  const std::string& path() const { return path_; }
  size_t rows() const { return rows_; }
  const std::vector<std::string>& names() const { return names_; }
  bool has(const std::string& name) const { return index_.count(name) > 0; }
  /// Throws Error(configuration) naming the file when it has no such column.
  const std::vector<double>& column(const std::string& name) const;
  /// The column, or `rows()` times NaN.
  std::vector<double> column_or_nan(const std::string& name) const;

 private:
  std::string path_;
  size_t rows_ = 0;
  std::vector<std::string> names_;
  std::map<std::string, size_t> index_;
  std::vector<std::vector<double>> columns_;
};

}  // namespace moetwin
