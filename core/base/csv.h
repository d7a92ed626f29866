#pragma once
// Comma-separated text with quotes (RFC 4180).

#include <cstdint>
#include <string>
#include <vector>

namespace moetwin {

struct CsvRecord {
  int64_t line = 1;  ///< where it begins, from 1
  std::vector<std::string> fields;
};

/// All records of a text, its header included; blank lines are passed over. Quoted fields may hold
/// commas, line ends and doubled quotes.
std::vector<CsvRecord> csv_records(const std::string& text);

}  // namespace moetwin
