#include "core/train/checkpoint/manifest.h"

#include <fmt/format.h>
#include <json/json.h>

#include <cmath>
#include <memory>

#include "core/base/error.h"
#include "core/train/checkpoint/checksum.h"
#include "core/train/checkpoint/safetensors.h"

namespace moetwin {

namespace {

// The checksum of all that follows stands first.
constexpr const char* kStart = "{\"crc32\": \"";
constexpr const char* kAfterSum = "\",\n";
constexpr size_t kSumDigits = 8;

Json::Value numbers(const std::array<int64_t, 3>& values) {
  Json::Value list(Json::arrayValue);
  for (const int64_t value : values) list.append(Json::Int64(value));
  return list;
}

std::array<int64_t, 3> three(const Json::Value& list) {
  return {list[0].asInt64(), list[1].asInt64(), list[2].asInt64()};
}

Json::Value position_json(const TrainingPosition& p) {
  Json::Value json;
  json["updates"] = Json::Int64(p.updates);
  json["loss_scale"] = p.loss_scale;
  json["clean_steps"] = Json::Int64(p.clean_steps);
  json["overflows"] = Json::Int64(p.overflows);
  json["consumed_sequences"] = Json::Int64(p.consumed_sequences);
  json["data_sequences"] = Json::Int64(p.data_sequences);
  json["seed"] = Json::Int64(p.seed);
  if (p.best_step > 0) {
    json["best"]["validation_loss"] = p.best_validation_loss;
    json["best"]["step"] = Json::Int64(p.best_step);
  }
  return json;
}

TrainingPosition parse_position(const Json::Value& json) {
  TrainingPosition p;
  p.updates = json["updates"].asInt64();
  p.loss_scale = json["loss_scale"].asDouble();
  p.clean_steps = json["clean_steps"].asInt64();
  p.overflows = json["overflows"].asInt64();
  p.consumed_sequences = json["consumed_sequences"].asInt64();
  p.data_sequences = json["data_sequences"].asInt64();
  p.seed = json["seed"].asInt64();
  if (json.isMember("best")) {
    p.best_validation_loss = json["best"]["validation_loss"].asDouble();
    p.best_step = json["best"]["step"].asInt64();
  }
  return p;
}

uint32_t parse_checksum(const Json::Value& value) {
  return static_cast<uint32_t>(std::stoul(value.asString(), nullptr, 16));
}

Json::Value tensors_json(const Manifest& manifest) {
  Json::Value tensors(Json::objectValue);
  for (const auto& [name, tensor] : manifest.tensors) {
    Json::Value& entry = tensors[name];
    entry["dtype"] = safetensors_dtype(tensor.dtype);
    entry["extents"] = numbers(tensor.extents);
    for (const StoredPart& stored : tensor.parts) {
      Json::Value part;
      part["file"] = stored.file;
      part["key"] = stored.key;
      part["crc32"] = checksum_text(stored.checksum);
      if (!stored.part.is_whole()) {
        part["offset"] = numbers(stored.part.offset);
        part["box"] = numbers(stored.part.local);
        part["begin"] = Json::Int64(stored.part.begin);
        part["count"] = Json::Int64(stored.part.count);
      }
      entry["parts"].append(part);
    }
  }
  return tensors;
}

StoredTensor parse_tensor(const Json::Value& json) {
  StoredTensor tensor;
  if (!parse_safetensors_dtype(json["dtype"].asString(), &tensor.dtype))
    throw std::invalid_argument("dtype");
  tensor.extents = three(json["extents"]);
  for (const Json::Value& entry : json["parts"]) {
    StoredPart stored;
    stored.file = entry["file"].asString();
    stored.key = entry["key"].asString();
    stored.checksum = parse_checksum(entry["crc32"]);
    stored.part = TensorPart::whole(tensor.extents);
    if (entry.isMember("box")) {
      stored.part.offset = three(entry["offset"]);
      stored.part.local = three(entry["box"]);
      stored.part.begin = entry["begin"].asInt64();
      stored.part.count = entry["count"].asInt64();
    }
    tensor.parts.push_back(std::move(stored));
  }
  return tensor;
}

Manifest from_json(const Json::Value& root) {
  Manifest manifest;
  manifest.type = root["type"].asString();
  manifest.optimizer = root["optimizer"].asString();
  manifest.position = parse_position(root["position"]);
  manifest.position.step = root["step"].asInt64();
  manifest.scenario = root["scenario"];
  manifest.scenario_path = root["scenario_path"].asString();
  for (const std::string& name : root["files"].getMemberNames()) {
    const Json::Value& file = root["files"][name];
    manifest.files[name] = {file["bytes"].asInt64(), parse_checksum(file["header_crc32"])};
  }
  for (const std::string& name : root["tensors"].getMemberNames())
    manifest.tensors[name] = parse_tensor(root["tensors"][name]);
  return manifest;
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  Json::Value root;
  root["schema"] = kManifestSchema;
  root["step"] = Json::Int64(manifest.position.step);
  root["type"] = manifest.type;
  root["optimizer"] = manifest.optimizer;
  root["position"] = position_json(manifest.position);
  root["scenario"] = manifest.scenario;
  root["scenario_path"] = manifest.scenario_path;
  root["files"] = Json::Value(Json::objectValue);
  for (const auto& [name, file] : manifest.files) {
    root["files"][name]["bytes"] = Json::Int64(file.bytes);
    root["files"][name]["header_crc32"] = checksum_text(file.header_checksum);
  }
  root["tensors"] = tensors_json(manifest);
  Json::StreamWriterBuilder builder;
  builder["indentation"] = " ";
  builder["precision"] = 17;
  std::string rest = Json::writeString(builder, root) + "\n";
  rest.erase(0, rest.find('{') + 1);
  return kStart + checksum_text(checksum(rest)) + kAfterSum + rest;
}

Manifest parse_manifest(const std::string& text, const std::string& path) {
  const auto damaged = [&path](const char* what) {
    return Error(ErrorClass::fault, fmt::format("{}: damaged: {}", path, what));
  };
  const std::string start = kStart, after = kAfterSum;
  const size_t rest = start.size() + kSumDigits + after.size();
  if (text.size() < rest || text.compare(0, start.size(), start) != 0 ||
      text.compare(start.size() + kSumDigits, after.size(), after) != 0)
    throw damaged("it does not begin with its checksum");
  if (text.compare(start.size(), kSumDigits, checksum_text(checksum(text.substr(rest)))) != 0)
    throw damaged("its bytes do not sum up to its checksum");
  Json::CharReaderBuilder builder;
  Json::CharReaderBuilder::strictMode(&builder.settings_);
  const std::unique_ptr<Json::CharReader> reader(builder.newCharReader());
  Json::Value root;
  std::string errors;
  if (!reader->parse(text.data(), text.data() + text.size(), &root, &errors) || !root.isObject())
    throw damaged("it is no JSON");
  if (root["schema"] != kManifestSchema)
    throw Error(ErrorClass::configuration,
                fmt::format("{}: schema {}: written by another version of moetwin; legal: {}", path,
                            root["schema"].isString() ? root["schema"].asString() : "(none)",
                            kManifestSchema));
  try {
    return from_json(root);
  } catch (const std::exception&) {
    // Json::Exception and what std::stoul throws.
    throw damaged("an entry is missing or of the wrong type");
  }
}

std::string moment_name(const char* moment, const std::string& name) {
  return fmt::format("optimizer.{}.{}", moment, name);
}

}  // namespace moetwin
