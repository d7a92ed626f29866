#pragma once
// Plain tables: first column to the left, the others to the right unless told.

#include <iosfwd>
#include <string>
#include <vector>

namespace moetwin {

class TextTable {
 public:
  /// `left`: which columns stand to the left.
  explicit TextTable(std::vector<bool> left) : left_(std::move(left)) {}
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  void print(std::ostream& out) const;

 private:
  std::vector<bool> left_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace moetwin
