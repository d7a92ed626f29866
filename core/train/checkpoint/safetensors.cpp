#include "core/train/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <json/json.h>

#include <algorithm>
#include <limits>

#include "core/base/error.h"
#include "core/train/checkpoint/checksum.h"

namespace moetwin {

namespace {

struct Named {
  DType dtype;
  const char* name;
};
constexpr Named kTypes[] = {{DType::f32, "F32"}, {DType::bf16, "BF16"}, {DType::f16, "F16"},
                            {DType::f64, "F64"}, {DType::i32, "I32"},   {DType::i64, "I64"}};

// The limit of the format's own reader.
constexpr int64_t kLongestHeader = 100'000'000;

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Error(ErrorClass::fault, fmt::format("{}: not a whole safetensors file: {}", path, what));
}

Json::Value parse_header(const std::string& path, const char* begin, const char* end) {
  Json::CharReaderBuilder builder;
  Json::CharReaderBuilder::strictMode(&builder.settings_);
  builder["failIfExtra"] = true;  // only spaces may follow
  Json::Value root;
  std::string errors;
  const std::unique_ptr<Json::CharReader> reader(builder.newCharReader());
  try {
    if (!reader->parse(begin, end, &root, &errors)) refuse(path, "its header is no JSON");
  } catch (const Json::Exception&) {
    refuse(path, "its header is no JSON");
  }
  if (!root.isObject()) refuse(path, "its header is no JSON object");
  return root;
}

bool is_size(const Json::Value& value) {
  return value.isIntegral() && value.isInt64() && value.asInt64() >= 0;
}

SafetensorsEntry parse_entry(const std::string& path, const std::string& name,
                             const Json::Value& value, int64_t data_bytes) {
  const auto bad = [&](const std::string& what) {
    refuse(path, fmt::format("tensor {}: {}", name, what));
  };
  if (!value.isObject() || !value["dtype"].isString() || !value["shape"].isArray() ||
      !value["data_offsets"].isArray() || value["data_offsets"].size() != 2)
    bad("needs dtype, shape and two data_offsets");
  SafetensorsEntry entry;
  entry.name = name;
  if (!parse_safetensors_dtype(value["dtype"].asString(), &entry.dtype))
    bad(fmt::format("dtype {}; legal: F64, F32, F16, BF16, I64, I32", value["dtype"].asString()));
  int64_t bytes = dtype_size(entry.dtype);
  for (const Json::Value& extent : value["shape"]) {
    if (!is_size(extent)) bad("an extent is no whole number of at least 0");
    entry.shape.push_back(extent.asInt64());
    if (__builtin_mul_overflow(bytes, extent.asInt64(), &bytes))
      bad("more elements than there can be");
  }
  const Json::Value &begin = value["data_offsets"][0], &end = value["data_offsets"][1];
  if (!is_size(begin) || !is_size(end)) bad("a data_offset is no whole number of at least 0");
  entry.begin = begin.asInt64();
  entry.end = end.asInt64();
  if (entry.begin > entry.end || entry.end - entry.begin != bytes)
    bad(fmt::format("data_offsets {} to {} for {} bytes of elements", entry.begin, entry.end,
                    bytes));
  if (entry.end > data_bytes)
    bad(fmt::format("ends at byte {} of {} bytes of elements: the file is truncated", entry.end,
                    data_bytes));
  return entry;
}

}  // namespace

const char* safetensors_dtype(DType dtype) {
  for (const Named& type : kTypes)
    if (type.dtype == dtype) return type.name;
  return "";
}

bool parse_safetensors_dtype(const std::string& name, DType* dtype) {
  for (const Named& type : kTypes)
    if (name == type.name) return *dtype = type.dtype, true;
  return false;
}

std::string safetensors_header(std::vector<SafetensorsEntry>& entries,
                               const SafetensorsMetadata& metadata) {
  // Written by hand in the order of the elements: a JSON library would sort the names.
  std::string json = "{";
  const auto member = [&json](const std::string& name, const std::string& value) {
    if (json.size() > 1) json += ",";
    json += Json::valueToQuotedString(name.c_str()) + ":" + value;
  };
  if (!metadata.empty()) {
    std::string values;
    for (const auto& [key, value] : metadata)
      values += (values.empty() ? "" : ",") + Json::valueToQuotedString(key.c_str()) + ":" +
                Json::valueToQuotedString(value.c_str());
    member("__metadata__", "{" + values + "}");
  }
  int64_t at = 0;
  for (SafetensorsEntry& entry : entries) {
    int64_t elements = 1;
    for (const int64_t extent : entry.shape) elements *= extent;
    entry.begin = at;
    entry.end = at += elements * dtype_size(entry.dtype);
    member(entry.name, fmt::format(R"({{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                   safetensors_dtype(entry.dtype), fmt::join(entry.shape, ","),
                                   entry.begin, entry.end));
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(json.size() >> (8 * i) & 0xff);
  return bytes + json;
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  if (file_.size() < 8) refuse(path, fmt::format("{} bytes; legal: at least 8", file_.size()));
  const auto length = file_.at<uint64_t>(0);
  const int64_t room = file_.size() - 8;
  if (length > static_cast<uint64_t>(std::min(room, kLongestHeader)))
    refuse(path, fmt::format("a header of {} bytes in a file of {}", length, file_.size()));
  header_bytes_ = 8 + static_cast<int64_t>(length);
  const char* begin = reinterpret_cast<const char*>(file_.data()) + 8;
  const Json::Value root = parse_header(path, begin, begin + length);
  for (const std::string& name : root.getMemberNames()) {
    const Json::Value& value = root[name];
    if (name == "__metadata__") {
      if (!value.isObject()) refuse(path, "__metadata__ is no object");
      for (const std::string& key : value.getMemberNames()) {
        if (!value[key].isString()) refuse(path, "__metadata__ holds something that is no text");
        metadata_[key] = value[key].asString();
      }
      continue;
    }
    entries_.push_back(parse_entry(path, name, value, file_.size() - header_bytes_));
  }
  std::sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  int64_t at = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const SafetensorsEntry& entry = entries_[i];
    if (entry.begin != at)
      refuse(path, fmt::format("tensor {}: begins at byte {}, the one before ends at {}",
                               entry.name, entry.begin, at));
    at = entry.end;
    by_name_[entry.name] = i;
  }
  if (at != file_.size() - header_bytes_)
    refuse(path, fmt::format("{} bytes behind the last tensor", file_.size() - header_bytes_ - at));
}

const SafetensorsEntry* SafetensorsFile::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

uint32_t SafetensorsFile::header_checksum() const {
  return checksum(file_.data(), static_cast<size_t>(header_bytes_));
}

}  // namespace moetwin
