#include "core/train/huggingface/model_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <json/json.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/base/error.h"
#include "core/base/float16.h"

namespace moetwin {

namespace fs = std::filesystem;

namespace {

/// File name of every tensor, as the index says.
std::map<std::string, std::string> read_index(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  Json::CharReaderBuilder builder;
  Json::CharReaderBuilder::strictMode(&builder.settings_);
  Json::Value root;
  std::string errors;
  if (!Json::parseFromStream(builder, in, &root, &errors) || !root.isObject() ||
      !root["weight_map"].isObject())
    throw Error(ErrorClass::configuration,
                fmt::format("{}: no JSON object with a weight_map", path));
  std::map<std::string, std::string> files;
  for (const std::string& tensor : root["weight_map"].getMemberNames()) {
    const Json::Value& file = root["weight_map"][tensor];
    if (!file.isString() || fs::path(file.asString()).filename() != file.asString())
      throw Error(ErrorClass::configuration,
                  fmt::format("{}: weight_map: tensor {}: legal: the name of a file beside it",
                              path, tensor));
    files[tensor] = file.asString();
  }
  return files;
}

float element(const unsigned char* bytes, DType dtype, size_t i) {
  const auto at = [&](auto value) {
    std::memcpy(&value, bytes + i * sizeof value, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::bf16:
      return from_bf16(at(uint16_t{}));
    case DType::f16:
      return from_f16(at(uint16_t{}));
    case DType::f64:
      return static_cast<float>(at(double{}));
    default:
      return at(float{});
  }
}

}  // namespace

bool has_model_files(const std::string& directory) {
  std::error_code ignored;
  return fs::is_regular_file(fs::path(directory) / kWeightsName, ignored) ||
         fs::is_regular_file(fs::path(directory) / kIndexName, ignored);
}

ModelFiles::ModelFiles(const std::string& directory) : directory_(directory) {
  const std::string index = directory + "/" + kIndexName;
  const auto open = [&](const std::string& file) -> const SafetensorsFile& {
    std::unique_ptr<SafetensorsFile>& opened = files_[file];
    if (!opened) opened = std::make_unique<SafetensorsFile>(directory + "/" + file);
    return *opened;
  };
  std::error_code ignored;
  if (!fs::is_regular_file(index, ignored)) {
    const SafetensorsFile& file = open(kWeightsName);
    for (const SafetensorsEntry& entry : file.entries()) file_of_[entry.name] = &file;
    return;
  }
  for (const auto& [tensor, name] : read_index(index)) {
    if (!fs::exists(directory + "/" + name, ignored))
      throw Error(ErrorClass::fault,
                  fmt::format("{}/{}: no such file, which {} says holds tensor {}", directory, name,
                              kIndexName, tensor));
    const SafetensorsFile& file = open(name);
    if (!file.find(tensor))
      throw Error(ErrorClass::fault, fmt::format("{}: no tensor {}, which {} says it holds",
                                                 file.path(), tensor, kIndexName));
    file_of_[tensor] = &file;
  }
  for (const auto& [name, file] : files_)
    for (const SafetensorsEntry& entry : file->entries())
      if (!file_of_.count(entry.name))
        throw Error(ErrorClass::fault, fmt::format("{}: tensor {} is not in {}", file->path(),
                                                   entry.name, kIndexName));
}

std::vector<std::string> ModelFiles::names() const {
  std::vector<std::string> all;
  for (const auto& [name, file] : file_of_) all.push_back(name);
  return all;
}

void ModelFiles::check(const std::string& name, const std::vector<int64_t>& shape) const {
  const auto found = file_of_.find(name);
  if (found == file_of_.end())
    throw Error(
        ErrorClass::configuration,
        fmt::format("{}: no tensor {}, which a model of this config.json has", directory_, name));
  const SafetensorsEntry& entry = *found->second->find(name);
  const std::string where = fmt::format("{}: tensor {}", found->second->path(), name);
  if (entry.shape != shape)
    throw Error(ErrorClass::configuration,
                fmt::format("{} is {}; by config.json it is {}", where,
                            fmt::join(entry.shape, " x "), fmt::join(shape, " x ")));
  if (entry.dtype == DType::i32 || entry.dtype == DType::i64)
    throw Error(ErrorClass::configuration, fmt::format("{} is {}; legal: F64, F32, F16, BF16",
                                                       where, safetensors_dtype(entry.dtype)));
}

std::vector<float> ModelFiles::read(const std::string& name,
                                    const std::vector<int64_t>& shape) const {
  check(name, shape);
  const SafetensorsFile& file = *file_of_.at(name);
  const SafetensorsEntry& entry = *file.find(name);
  std::vector<float> values(
      static_cast<size_t>((entry.end - entry.begin) / dtype_size(entry.dtype)));
  const unsigned char* bytes = file.data(entry);
  for (size_t i = 0; i < values.size(); ++i) values[i] = element(bytes, entry.dtype, i);
  return values;
}

}  // namespace moetwin
