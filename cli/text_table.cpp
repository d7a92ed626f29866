#include "cli/text_table.h"

#include <algorithm>
#include <ostream>

namespace moetwin {

void TextTable::print(std::ostream& out) const {
  std::vector<size_t> width(left_.size());
  for (const auto& row : rows_)
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(width[i] - row[i].size(), ' ');
      line += "  " + (left_[i] ? row[i] + pad : pad + row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << "\n";
  }
}

}  // namespace moetwin
