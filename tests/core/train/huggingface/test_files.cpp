// Hugging Face models there and back: the same bytes; and what is refused, by file and tensor.

#include <json/json.h>

#include <filesystem>

#include "core/base/error.h"
#include "core/base/float16.h"
#include "core/train/huggingface/config.h"
#include "core/train/huggingface/export_weights.h"
#include "core/train/huggingface/import_weights.h"
#include "core/train/huggingface/model_files.h"
#include "tests/core/train/huggingface/fixture.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

struct Stored {
  DType dtype;
  std::vector<int64_t> shape;
  std::string bytes;
  bool operator==(const Stored&) const = default;
};
using Tensors = std::map<std::string, Stored>;

Tensors tensors_in(const std::string& directory) {
  Tensors all;
  for (const auto& file : fs::directory_iterator(directory)) {
    const std::string name = file.path().filename().string();
    if (name.rfind("model", 0) != 0 || file.path().extension() != ".safetensors") continue;
    const SafetensorsFile model(file.path().string());
    for (const SafetensorsEntry& entry : model.entries())
      all[entry.name] = {entry.dtype,
                         entry.shape,
                         {reinterpret_cast<const char*>(model.data(entry)),
                          static_cast<size_t>(entry.end - entry.begin)}};
  }
  return all;
}

/// A copy of the Mixtral model with other tensors, in one file.
void write_model(const TemporaryDirectory& to, const Tensors& tensors) {
  fs::copy_file(model_directory("mixtral") + "/config.json", to / "config.json",
                fs::copy_options::overwrite_existing);
  std::vector<SafetensorsEntry> entries;
  std::string bytes;
  for (const auto& [name, stored] : tensors) {
    SafetensorsEntry entry;
    entry.name = name, entry.dtype = stored.dtype, entry.shape = stored.shape;
    entries.push_back(entry);
    bytes += stored.bytes;
  }
  to.write("model.safetensors", safetensors_header(entries, {}) + bytes);
}

std::string refusal(const TemporaryDirectory& model) {
  const Scenario s = model_scenario(model_directory("mixtral"));
  try {
    import_huggingface_weights(model.path(), s, model / "out", *system_files());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Json::Value json_file(const std::string& path) {
  Json::Value root;
  std::ifstream(path) >> root;
  return root;
}

}  // namespace

TEST_CASE("what was imported is exported as the same bytes, and the same model", "[huggingface]") {
  for (const auto& [name, dtype] : {std::pair{"mixtral", "fp32"}, std::pair{"qwen3_moe", "fp16"},
                                    std::pair{"olmoe", "bf16"}, std::pair{"deepseek_v3", "fp32"}}) {
    CAPTURE(name);
    const std::string from = model_directory(name);
    const Scenario s = model_scenario(from);
    const TemporaryDirectory temporary;
    const ImportedWeights imported =
        import_huggingface_weights(from, s, temporary / "weights", *system_files());
    CHECK(imported.left_out.empty());
    ExportOptions options;
    options.directory = temporary / "out";
    options.dtype = dtype;
    options.shard_bytes = 30000;
    const ExportedModel exported =
        export_huggingface(Checkpoint(temporary / "weights"), s, options, *system_files());
    CHECK(exported.model_type == name);
    CHECK(exported.files.size() > 3);  // shards, their index, config.json
    CHECK(tensors_in(temporary / "out") == tensors_in(from));
    const ModelFiles whole(temporary / "out");  // as the index says
    CHECK(whole.names().size() == tensors_in(from).size());
    // The same scenario comes out of the new config.json.
    const Scenario again = model_scenario(temporary / "out");
    const Json::Value was = scenario_to_json(s), is = scenario_to_json(again);
    for (const char* section : {"model_config", "routing"}) {
      Json::Value a = was[section], b = is[section];
      a["moe_layer_config"].removeMember("aux_loss_factor");  // to rounding
      b["moe_layer_config"].removeMember("aux_loss_factor");
      CHECK(a == b);
    }
    CHECK(again.model_config.moe_layer_config.aux_loss_factor ==
          Approx(s.model_config.moe_layer_config.aux_loss_factor));
    // Every key of the model that transformers wrote has its value, where both have it.
    const Json::Value theirs = json_file(from + "/config.json"),
                      ours = json_file(temporary / "out/config.json");
    for (const char* key : {"model_type",
                            "architectures",
                            "hidden_size",
                            "intermediate_size",
                            "vocab_size",
                            "num_hidden_layers",
                            "num_attention_heads",
                            "num_key_value_heads",
                            "num_experts_per_tok",
                            "moe_intermediate_size",
                            "norm_topk_prob",
                            "rms_norm_eps",
                            "tie_word_embeddings",
                            "first_k_dense_replace",
                            "n_group",
                            "topk_group",
                            "q_lora_rank",
                            "kv_lora_rank",
                            "qk_nope_head_dim",
                            "qk_rope_head_dim",
                            "v_head_dim",
                            "routed_scaling_factor",
                            "n_shared_experts",
                            "n_routed_experts",
                            "decoder_sparse_step"}) {
      CAPTURE(key);
      if (theirs.isMember(key) && !theirs[key].isNull())
        CHECK(ours[key].toStyledString() == theirs[key].toStyledString());
    }
  }
}

TEST_CASE("a missing, unexpected or mis-shaped tensor is refused with file and name",
          "[huggingface]") {
  const Tensors whole = tensors_in(model_directory("mixtral"));
  const std::string expert = "model.layers.1.block_sparse_moe.experts.2.w3.weight";
  const TemporaryDirectory model;
  Tensors changed = whole;
  changed.erase(expert);
  write_model(model, changed);
  CHECK_THAT(refusal(model), Contains(model.path()) && Contains("no tensor " + expert));
  changed = whole;
  changed["model.layers.0.self_attn.q_proj.bias"] = {DType::f32, {1}, std::string(4, '\0')};
  write_model(model, changed);
  CHECK_THAT(refusal(model), Contains(model.path()) &&
                                 Contains("model.layers.0.self_attn.q_proj.bias") &&
                                 Contains("no counterpart"));
  changed = whole;
  std::swap(changed[expert].shape[0], changed[expert].shape[1]);
  write_model(model, changed);
  CHECK_THAT(refusal(model), Contains("model.safetensors: tensor " + expert) &&
                                 Contains("is 32 x 16") && Contains("it is 16 x 32"));
  changed = whole;
  changed[expert].dtype = DType::i32;
  write_model(model, changed);
  CHECK_THAT(refusal(model), Contains(expert) && Contains("is I32") && Contains("BF16"));
  CHECK_FALSE(fs::exists(model / "out"));
  write_model(model, whole);
  CHECK(refusal(model).empty());
  CHECK_THAT(refusal(model), Contains("is there already"));
}

TEST_CASE("weights of layers that predict further tokens are left out by name", "[huggingface]") {
  Tensors tensors = tensors_in(model_directory("mixtral"));
  tensors["model.layers.2.eh_proj.weight"] = {DType::f32, {1}, std::string(4, '\0')};
  const TemporaryDirectory model;
  write_model(model, tensors);
  const Scenario s = model_scenario(model_directory("mixtral"));
  const ImportedWeights imported =
      import_huggingface_weights(model.path(), s, model / "out", *system_files());
  REQUIRE(imported.left_out.size() == 1);
  CHECK_THAT(imported.left_out[0], Contains("model.layers.2.eh_proj.weight"));
}

TEST_CASE("an index that does not fit its files is refused", "[huggingface]") {
  const std::string from = model_directory("mixtral");
  const TemporaryDirectory model;
  for (const auto& file : fs::directory_iterator(from))
    fs::copy_file(file.path(), model / file.path().filename().string());
  fs::remove(model / "model-00002-of-00003.safetensors");
  CHECK_THROWS_WITH(
      ModelFiles(model.path()),
      Contains("model-00002-of-00003.safetensors: no such file") && Contains("holds tensor"));
  Json::Value index = json_file(from + "/model.safetensors.index.json");
  index["weight_map"]["absent.weight"] = "model-00001-of-00003.safetensors";
  fs::copy_file(from + "/model-00002-of-00003.safetensors",
                model / "model-00002-of-00003.safetensors");
  model.write("model.safetensors.index.json", index.toStyledString());
  CHECK_THROWS_WITH(ModelFiles(model.path()),
                    Contains("model-00001-of-00003.safetensors: no tensor absent.weight"));
  model.write("model.safetensors.index.json", "[]");
  CHECK_THROWS_WITH(ModelFiles(model.path()), Contains("index.json: no JSON object"));
}

TEST_CASE("what no model of transformers computes is refused by key", "[huggingface]") {
  Scenario s = model_scenario(model_directory("mixtral"));
  CHECK(huggingface_config(s, "fp32").model_type == "mixtral");
  s.routing.jitter_epsilon = 0.25;
  CHECK(huggingface_config(s, "fp32").json["router_jitter_noise"] == 0.25);
  s.routing.noise = {"gumbel", 0.5};
  const std::vector<std::string> left = huggingface_config(s, "fp32").left_out;
  REQUIRE(left.size() == 1);
  CHECK_THAT(left[0], Contains("routing.noise.scale = 0.5"));
  s.model_config.normalization = "layernorm";
  s.model_config.moe_layer_config.expert_bias = true;
  s.model_config.moe_layer_config.capacity_factor = 1.25;
  s.routing.normalize_weights = 0;
  CHECK_THROWS_WITH(
      huggingface_config(s, "fp32"),
      Contains("model_config.normalization: layernorm: mixtral has no such thing; legal for "
               "export: rmsnorm") &&
          Contains("expert_bias: true") && Contains("capacity_factor: 1.25") &&
          Contains("routing.normalize_weights: 0"));
}

TEST_CASE("differences that change what a model computes are told apart", "[huggingface]") {
  const auto differences = [](const char* more) {
    ScenarioDraft draft;
    import_huggingface(std::string(R"({"model_type": "olmoe", "hidden_size": 64,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_experts": 8, "num_experts_per_tok": 2,
      "intermediate_size": 32, "vocab_size": 256)") +
                           more + "}",
                       "config.json", &draft);
    const ImportedScenario imported = draft.finish("config.json");
    REQUIRE(imported.problems.empty());
    std::string all;
    for (const std::string& line : imported.differences) all += line + "\n";
    return all;
  };
  CHECK(differences("").empty());
  CHECK(differences(R"(, "clip_qkv": null, "use_cache": true)").empty());
  CHECK_THAT(differences(R"(, "clip_qkv": 8.0)"), Contains("clip_qkv = 8"));
  CHECK_THAT(differences(R"(, "sliding_window": 128)"), Contains("sliding_window = 128"));
  CHECK_THAT(differences(R"(, "hidden_act": "relu")"), Contains("hidden_act"));
  CHECK_THAT(differences(R"(, "rope_scaling": {"rope_type": "llama3", "factor": 8.0})"),
             Contains("rope_type"));
}

TEST_CASE("16-bit floating types as files hold them", "[huggingface]") {
  // Every value of fp16 but NaN comes back; halves between two go to the even one.
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto narrow = static_cast<uint16_t>(bits);
    if ((narrow & 0x7fff) > 0x7c00) continue;
    if (to_f16(from_f16(narrow)) != narrow || to_bf16(from_bf16(narrow)) != narrow) {
      CAPTURE(bits);
      CHECK(false);
    }
  }
  CHECK(from_f16(0x3c00) == 1.0f);
  CHECK(from_f16(0x0001) == 0x1p-24f);
  CHECK(from_f16(0xfbff) == -65504.0f);
  CHECK(to_f16(1 + 0x1p-11f) == 0x3c00);
  CHECK(to_f16(1 + 3 * 0x1p-11f) == 0x3c02);
  CHECK(to_f16(0x1p-25f) == 0);
  CHECK(to_f16(0x1.8p-25f) == 1);
  CHECK(to_f16(65519.0f) == 0x7bff);
  CHECK(to_f16(65520.0f) == 0x7c00);
  CHECK(to_f16(-1e30f) == 0xfc00);
  CHECK(from_bf16(0x3f80) == 1.0f);
  CHECK(to_bf16(1 + 0x1p-8f) == 0x3f80);
  CHECK(to_bf16(1 + 3 * 0x1p-8f) == 0x3f82);
  CHECK(to_bf16(3.4e38f) == 0x7f80);
  CHECK(std::isnan(from_f16(to_f16(std::nanf("")))));
  CHECK(std::isnan(from_bf16(to_bf16(std::nanf("")))));
}
