#include "core/train/huggingface/import_weights.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "core/base/error.h"
#include "core/scenario/json_members.h"
#include "core/scenario/read.h"
#include "core/train/checkpoint/save.h"
#include "core/train/huggingface/model_files.h"
#include "core/train/huggingface/weight_map.h"

namespace moetwin {

namespace fs = std::filesystem;

namespace {

/// A file of the checkpoint is written when it has this much.
constexpr size_t kFileBytes = size_t{1} << 30;

Json::Value read_config(const std::string& directory) {
  const std::string path = directory + "/config.json";
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw Error(ErrorClass::configuration, fmt::format("{}: cannot be read", path));
  return parse_object(text.str(), path);
}

/// Why a tensor that the model does not have may be left out; empty: it may not.
std::string reason_to_leave(const std::string& name, const ModelConfig& model) {
  if (name == "lm_head.weight" && model.tie_embeddings)
    return "tie_word_embeddings: the embedding's table stands";
  if (name.ends_with("rotary_emb.inv_freq")) return "frequencies follow from the scenario";
  const std::string layers = "model.layers.";
  if (name.starts_with(layers) && std::atoll(name.c_str() + layers.size()) >= model.num_layers)
    return "a layer beyond num_hidden_layers: multi-token prediction has no counterpart";
  return "";
}

std::vector<std::string> left_out(const ModelFiles& model, const WeightMap& map,
                                  const Scenario& scenario) {
  std::vector<std::string> lines;
  std::string unexpected;
  size_t more = 0;
  for (const std::string& name : model.names()) {
    if (map.theirs.count(name)) continue;
    const std::string reason = reason_to_leave(name, scenario.model_config);
    if (!reason.empty())
      lines.push_back(fmt::format("{} ({})", name, reason));
    else if (unexpected.empty())
      unexpected = name;
    else
      ++more;
  }
  if (unexpected.empty()) return lines;
  throw Error(
      ErrorClass::configuration,
      fmt::format("{}: tensor {}{} has no counterpart in the scenario's model: nothing is "
                  "taken over",
                  model.directory(), unexpected, more ? fmt::format(" (and {} more)", more) : ""));
}

/// Writes tensors into files as they come.
class PartWriter {
 public:
  PartWriter(const std::string& directory, FileOperations& files)
      : directory_(directory), files_(files) {}

  void add(const std::string& name, const std::array<int64_t, 3>& extents,
           const std::vector<float>& values) {
    OwnedPart part{name, DType::f32, TensorPart::whole(extents), {}};
    part.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    bytes_ += part.bytes.size();
    state_.parts.push_back(std::move(part));
    if (bytes_ >= kFileBytes) write();
  }
  void write() {
    if (state_.parts.empty()) return;
    const std::string name = fmt::format("weights-{:05}.safetensors", done_.files.size());
    write_shard(files_, directory_, name, state_, done_);
    state_.parts.clear();
    bytes_ = 0;
  }
  SavePart& done() { return done_; }

 private:
  const std::string directory_;
  FileOperations& files_;
  RankState state_;
  size_t bytes_ = 0;
  SavePart done_;
};

}  // namespace

ImportedWeights import_huggingface_weights(const std::string& directory, const Scenario& scenario,
                                           const std::string& out, FileOperations& files) {
  std::error_code ignored;
  if (fs::exists(out, ignored))
    throw Error(ErrorClass::configuration,
                fmt::format("{}: is there already; legal: a directory that is not", out));
  const Json::Value config = read_config(directory);
  const ModelFiles model(directory);
  const WeightMap map = huggingface_weights(scenario.model_config, config["model_type"].asString(),
                                            config.get("rope_interleave", true).asBool());
  ImportedWeights result;
  result.left_out = left_out(model, map, scenario);
  for (const auto& [name, shape] : map.theirs) model.check(name, shape);
  files.make_directory(out);
  PartWriter writer(out, files);
  for (size_t i = 0; i < map.pieces.size();) {
    const std::string& ours = map.pieces[i].ours;
    const std::array<int64_t, 3>& extents = map.ours.at(ours);
    std::vector<float> values(static_cast<size_t>(extents[0] * extents[1] * extents[2]));
    for (; i < map.pieces.size() && map.pieces[i].ours == ours; ++i)
      piece_to_ours(map.pieces[i],
                    model.read(map.pieces[i].theirs, map.theirs.at(map.pieces[i].theirs)).data(),
                    values.data());
    writer.add(ours, extents, values);
    ++result.tensors;
    result.elements += static_cast<int64_t>(values.size());
  }
  writer.write();
  Manifest manifest;
  manifest.type = "sharded";
  manifest.optimizer = kWeightsAlone;
  manifest.position.seed = scenario.training_config.seed;
  manifest.scenario = scenario_to_json(scenario);
  if (!scenario.path.empty()) manifest.scenario_path = fs::absolute(scenario.path).string();
  manifest.files = writer.done().files;
  manifest.tensors = writer.done().tensors;
  const std::string text = manifest_text(manifest), path = out + "/" + kManifestName;
  write_file(files, path + ".part", {text});
  files.rename(path + ".part", path);
  files.sync_directory(out);
  return result;
}

}  // namespace moetwin
