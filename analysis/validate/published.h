#pragma once
// Rows of a published table: fields by the names of the header.

#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace moetwin {

/// A field that should be a number and is none; what() names file, line, column and value.
struct UnreadableField : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class PublishedRow {
 public:
  using Header = std::map<std::string, size_t>;
  PublishedRow(std::shared_ptr<const Header> header, std::vector<std::string> fields,
               std::string place)
      : header_(std::move(header)), fields_(std::move(fields)), place_(std::move(place)) {}

  /// "" where the table has no such column or the field is empty.
  const std::string& text(const std::string& column) const;
  bool has(const std::string& column) const { return !text(column).empty(); }
  /// Whether the field has `part` in it, whatever the case.
  bool mentions(const std::string& column, const std::string& part) const;
  /// Empty fields are nullopt. Throws UnreadableField.
  std::optional<double> number(const std::string& column) const;
  /// A whole number of at least 0, or `otherwise` for an empty field. Throws UnreadableField.
  int64_t whole(const std::string& column, int64_t otherwise) const;
  /// The row with other values in columns that the table has.
  PublishedRow with(const std::map<std::string, std::string>& values) const;

  const std::string& id() const { return text("id"); }
  const std::string& series() const { return text("series"); }
  const std::string& place() const { return place_; }  ///< "nccl.csv:17"

 private:
  std::shared_ptr<const Header> header_;
  std::vector<std::string> fields_;
  std::string place_;
};

/// The rows of a table. Throws Error(configuration) naming the file when it cannot be read, lacks
/// one of `columns` (all that it has are listed) or a record has more fields than the header.
std::vector<PublishedRow> read_published(const std::string& path,
                                         const std::vector<std::string>& columns);

/// Lower case, for comparing words of rows.
std::string lower_case(std::string text);

}  // namespace moetwin
