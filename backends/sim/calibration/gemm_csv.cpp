#include "backends/sim/calibration/gemm_csv.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <sstream>

#include "core/base/error.h"

namespace moetwin {
namespace {

/// Fields of a line; "a ""quoted"" field" as in RFC 4180.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += line[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else if (c != '\r') {
      fields.back() += c;
    }
  }
  return fields;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

class Columns {
 public:
  Columns(const std::string& header, const std::string& file) {
    const std::vector<std::string> names = fields_of(header);
    for (size_t i = 0; i < names.size(); ++i) index_[lower(names[i])] = i;
    for (const char* needed : {"m", "n", "k", "dtype"})
      if (!index_.count(needed))
        throw Error(ErrorClass::configuration,
                    fmt::format("{}:1: there is no column \"{}\"; needed: m, n, k, dtype, and one "
                                "of seconds, time_ms, time_us, tflops",
                                file, needed));
  }
  std::string text(const std::vector<std::string>& fields, const char* name) const {
    const auto found = index_.find(name);
    return found == index_.end() || found->second >= fields.size() ? "" : fields[found->second];
  }
  std::optional<double> number(const std::vector<std::string>& fields, const char* name) const {
    const std::string value = text(fields, name);
    double result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (value.empty() || error != std::errc() || end != value.data() + value.size() || result <= 0)
      return std::nullopt;
    return result;
  }

 private:
  std::map<std::string, size_t> index_;
};

std::optional<DType> dtype_of(const std::string& text) {
  if (text == "float" || text == "float32") return DType::f32;
  for (const DType d : {DType::f32, DType::bf16, DType::f16})
    if (lower(text) == dtype_name(d)) return d;
  return std::nullopt;
}

std::optional<double> seconds_of(const Columns& columns, const std::vector<std::string>& fields,
                                 double flop) {
  if (const auto s = columns.number(fields, "seconds")) return *s;
  if (const auto ms = columns.number(fields, "time_ms")) return *ms * 1e-3;
  if (const auto us = columns.number(fields, "time_us")) return *us * 1e-6;
  if (const auto rate = columns.number(fields, "tflops")) return flop / (*rate * 1e12);
  return std::nullopt;
}

}  // namespace

std::vector<KernelMeasurement> read_gemm_csv(const std::string& text, const std::string& file,
                                             const std::string& gpu,
                                             std::vector<std::string>& problems) {
  std::istringstream in(text);
  std::string line;
  std::getline(in, line);
  const Columns columns(line, file);
  std::vector<KernelMeasurement> list;
  for (int64_t number = 2; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \r") == std::string::npos) continue;
    const std::vector<std::string> fields = fields_of(line);
    const std::string op = columns.text(fields, "op");
    if (!op.empty() && op != "gemm") continue;
    if (columns.text(fields, "gpu").find(gpu) == std::string::npos) continue;
    const auto m = columns.number(fields, "m"), n = columns.number(fields, "n"),
               k = columns.number(fields, "k");
    const auto dtype = dtype_of(columns.text(fields, "dtype"));
    const double flop = m && n && k ? 2 * *m * *n * *k : 0;
    const auto seconds = seconds_of(columns, fields, flop);
    if (!m || !n || !k || !dtype || !seconds) {
      problems.push_back(fmt::format(
          "{}:{}: m \"{}\", n \"{}\", k \"{}\", dtype \"{}\"{}: sizes and time must be greater "
          "than 0, dtype one of fp32, bf16, fp16",
          file, number, columns.text(fields, "m"), columns.text(fields, "n"),
          columns.text(fields, "k"), columns.text(fields, "dtype"), seconds ? "" : ", no time"));
      continue;
    }
    KernelMeasurement measured;
    measured.seconds = *seconds;
    measured.what =
        fmt::format("gemm {} {}x{}x{}, {}:{}", dtype_name(*dtype), *m, *n, *k, file, number);
    KernelWork work;
    work.kind = KernelKind::gemm;
    work.dtype = *dtype;
    work.flop = flop;
    work.bytes = static_cast<double>(dtype_size(*dtype)) * (*m * *k + *k * *n + *m * *n);
    work.m = static_cast<int64_t>(*m), work.n = static_cast<int64_t>(*n);
    work.k = static_cast<int64_t>(*k);
    measured.kernels.push_back(work);
    list.push_back(std::move(measured));
  }
  if (list.empty())
    throw Error(ErrorClass::configuration,
                fmt::format("{}: no row of a product{} is left to fit{}", file,
                            gpu.empty() ? "" : " on \"" + gpu + "\"",
                            problems.empty() ? "" : "; " + problems.front()));
  return list;
}

}  // namespace moetwin
