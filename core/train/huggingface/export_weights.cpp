#include "core/train/huggingface/export_weights.h"

#include <fmt/format.h>
#include <json/writer.h>

#include <filesystem>
#include <utility>

#include "core/base/error.h"
#include "core/base/float16.h"
#include "core/moe/balance.h"
#include "core/train/checkpoint/save.h"
#include "core/train/huggingface/config.h"
#include "core/train/huggingface/model_files.h"
#include "core/train/huggingface/weight_map.h"

namespace moetwin {

namespace fs = std::filesystem;

namespace {

/// Reals keep their point: transformers refuses a whole number where it wants a real one.
std::string text_of(const Json::Value& value) {
  Json::StreamWriterBuilder builder;
  builder["indentation"] = "  ";
  builder["precision"] = 15;
  builder["enableYAMLCompatibility"] = true;  // "key": value
  return Json::writeString(builder, value) + "\n";
}

std::string narrowed(const std::vector<float>& values, DType dtype) {
  std::string bytes;
  bytes.reserve(values.size() * static_cast<size_t>(dtype_size(dtype)));
  const auto put = [&bytes](auto value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (const float value : values) {
    if (dtype == DType::bf16)
      put(to_bf16(value));
    else if (dtype == DType::f16)
      put(to_f16(value));
    else
      put(value);
  }
  return bytes;
}

/// Tensors of ours, the last one kept: several of theirs come from one of them.
class OurTensors {
 public:
  OurTensors(const Checkpoint& checkpoint, const WeightMap& map)
      : checkpoint_(checkpoint), map_(map) {}

  /// Throws as Checkpoint::read where one is missing or of other extents.
  void check() const {
    for (const auto& [name, extents] : map_.ours) {
      TensorPart nothing = TensorPart::whole(extents);
      nothing.count = 0;
      const auto stored = checkpoint_.manifest().tensors.find(name);
      const bool there = stored != checkpoint_.manifest().tensors.end();
      if (there || name != kBalanceBias)
        checkpoint_.read(name, there ? stored->second.dtype : DType::f32, nothing, nullptr);
    }
  }
  const std::vector<float>& get(const std::string& name) {
    if (name == name_) return values_;
    const TensorPart whole = TensorPart::whole(map_.ours.at(name));
    values_.assign(static_cast<size_t>(whole.count), 0);
    // A training without balance bias has none: zero.
    if (name != kBalanceBias || checkpoint_.has(name)) read(name, whole);
    name_ = name;
    return values_;
  }

 private:
  void read(const std::string& name, const TensorPart& whole) {
    const auto stored = checkpoint_.manifest().tensors.find(name);
    if (stored == checkpoint_.manifest().tensors.end() || stored->second.dtype != DType::f64) {
      checkpoint_.read(name, DType::f32, whole, values_.data());
      return;
    }
    std::vector<double> wide(values_.size());
    checkpoint_.read(name, DType::f64, whole, wide.data());
    for (size_t i = 0; i < wide.size(); ++i) values_[i] = static_cast<float>(wide[i]);
  }

  const Checkpoint& checkpoint_;
  const WeightMap& map_;
  std::string name_;
  std::vector<float> values_;
};

/// One of theirs on its way into a file.
struct Outgoing {
  SafetensorsEntry entry;
  std::vector<const WeightPiece*> pieces;
  int64_t bytes = 0;
};

std::vector<Outgoing> outgoing(const WeightMap& map, DType dtype) {
  std::map<std::string, Outgoing> by_name;
  std::vector<std::string> order;
  for (const WeightPiece& piece : map.pieces) {
    Outgoing& out = by_name[piece.theirs];
    if (out.pieces.empty()) order.push_back(piece.theirs);
    out.pieces.push_back(&piece);
  }
  std::vector<Outgoing> all;
  for (const std::string& name : order) {
    Outgoing out = std::move(by_name[name]);
    out.entry.name = name;
    // Selection compares it with scores in fp32.
    out.entry.dtype = name.ends_with("e_score_correction_bias") ? DType::f32 : dtype;
    out.entry.shape = map.theirs.at(name);
    out.bytes = dtype_size(out.entry.dtype);
    for (const int64_t extent : out.entry.shape) out.bytes *= extent;
    all.push_back(std::move(out));
  }
  return all;
}

class Closing {
 public:
  Closing(FileOperations& files, const std::string& path)
      : files_(files), path_(path), file_(files.create(path)) {}
  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;
  ~Closing() {
    if (file_ >= 0) files_.close(file_, path_);
  }
  void write(const std::string& bytes) { files_.write(file_, bytes.data(), bytes.size(), path_); }
  void finish() {
    files_.sync(file_, path_);
    files_.close(std::exchange(file_, -1), path_);
  }

 private:
  FileOperations& files_;
  const std::string path_;
  int file_;
};

void write_shard_of(std::vector<Outgoing>& tensors, OurTensors& ours, const std::string& path,
                    FileOperations& files) {
  std::vector<SafetensorsEntry> entries;
  for (const Outgoing& out : tensors) entries.push_back(out.entry);
  Closing file(files, path);
  file.write(safetensors_header(entries, {{"format", "pt"}}));
  for (const Outgoing& out : tensors) {
    std::vector<float> theirs(static_cast<size_t>(out.bytes / dtype_size(out.entry.dtype)));
    for (const WeightPiece* piece : out.pieces)
      piece_to_theirs(*piece, ours.get(piece->ours).data(), theirs.data());
    file.write(narrowed(theirs, out.entry.dtype));
  }
  file.finish();
}

std::vector<std::vector<Outgoing>> in_shards(std::vector<Outgoing> tensors, int64_t most) {
  std::vector<std::vector<Outgoing>> shards;
  int64_t bytes = 0;
  for (Outgoing& out : tensors) {
    if (shards.empty() || bytes + out.bytes > most) shards.emplace_back(), bytes = 0;
    bytes += out.bytes;
    shards.back().push_back(std::move(out));
  }
  return shards;
}

}  // namespace

ExportedModel export_huggingface(const Checkpoint& checkpoint, const Scenario& scenario,
                                 const ExportOptions& options, FileOperations& files) {
  ExportedModel result;
  const std::string& training = scenario.training_config.dtype;
  result.dtype = !options.dtype.empty() ? options.dtype : training == "fp64" ? "fp32" : training;
  const HuggingFaceConfig config = huggingface_config(scenario, result.dtype);
  result.model_type = config.model_type;
  result.left_out = config.left_out;
  std::error_code ignored;
  if (fs::exists(options.directory, ignored) && !fs::is_empty(options.directory, ignored))
    throw Error(ErrorClass::configuration,
                fmt::format("{}: is not empty; legal: a directory that is empty or not there",
                            options.directory));
  const WeightMap map = huggingface_weights(scenario.model_config, config.model_type);
  OurTensors ours(checkpoint, map);
  std::vector<std::vector<Outgoing>> shards =
      in_shards(outgoing(map, parse_dtype(result.dtype)), options.shard_bytes);
  ours.check();
  files.make_directory(options.directory);
  Json::Value index;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        shards.size() == 1 ? kWeightsName
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_shard_of(shards[i], ours, options.directory + "/" + name, files);
    result.files.push_back(name);
    for (const Outgoing& out : shards[i]) {
      index["weight_map"][out.entry.name] = name;
      result.bytes += out.bytes;
      ++result.tensors;
    }
  }
  if (shards.size() > 1) {
    index["metadata"]["total_size"] = Json::Int64(result.bytes);
    write_file(files, options.directory + "/" + kIndexName, {text_of(index)});
    result.files.push_back(kIndexName);
  }
  write_file(files, options.directory + "/config.json", {text_of(config.json)});
  result.files.push_back("config.json");
  files.sync_directory(options.directory);
  return result;
}

}  // namespace moetwin
