// `moetwin import FILE...`: a scenario from the files of other programs, and a checkpoint from a
// Hugging Face model.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <ostream>
#include <sstream>

#include "cli/verbs.h"
#include "core/base/error.h"
#include "core/scenario/import_json.h"
#include "core/scenario/import_megatron.h"
#include "core/scenario/import_python.h"
#include "core/scenario/read.h"
#include "core/train/huggingface/import_weights.h"
#include "core/train/huggingface/model_files.h"

namespace moetwin {
namespace {

struct ImportArguments {
  std::vector<std::string> files;
  std::string out, weights, from = "auto";
};

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file)
    throw Error(ErrorClass::configuration,
                fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
  return text.str();
}

/// What a file is, by its name, and where that is not enough by what is in it.
std::string kind_of(const std::string& path, const std::string& text) {
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension == ".py") return "python";
  if (extension != ".json") return "megatron";
  const std::string kind = json_kind(text);
  if (kind.empty())
    throw Error(
        ErrorClass::configuration,
        fmt::format("{}: neither a config.json of Hugging Face nor a ds_config.json; legal: "
                    "--from python, megatron, deepspeed or huggingface",
                    path));
  return kind;
}

/// The directories among the files that hold a model's weights.
std::string directory_of_weights(const std::vector<std::string>& files) {
  std::string found;
  for (const std::string& file : files) {
    if (!has_model_files(file)) continue;
    if (!found.empty())
      throw Error(ErrorClass::configuration,
                  fmt::format("{} and {} both hold weights; legal: one model", found, file));
    found = file;
  }
  return found;
}

/// mine.json -> mine-weights
std::string weights_beside(const std::string& scenario) {
  std::filesystem::path path = scenario;
  return path.replace_extension().string() + "-weights";
}

int take_weights(const ImportArguments& arguments, const ImportedScenario& imported,
                 const std::string& from, const Output& output) {
  const auto refuse = [&](const std::string& why) {
    output.err << fmt::format("moetwin: weights of {} are not taken over: {}\n", from, why);
    return static_cast<int>(ErrorClass::configuration);
  };
  if (arguments.out.empty()) return refuse("-o: where to write the scenario they belong to?");
  if (!imported.problems.empty()) return refuse("the scenario is not valid yet");
  if (!imported.differences.empty())
    return refuse(fmt::format("the model here would compute something else: {}",
                              fmt::join(imported.differences, "; ")));
  const Scenario scenario = read_scenario(arguments.out);
  const std::string out =
      arguments.weights.empty() ? weights_beside(arguments.out) : arguments.weights;
  const auto files = system_files();
  const ImportedWeights weights = import_huggingface_weights(from, scenario, out, *files);
  output.err << fmt::format("wrote {}: {} tensors, {} parameters\n", out, weights.tensors,
                            weights.elements);
  for (const std::string& line : weights.left_out)
    output.err << fmt::format("  left out: {}\n", line);
  output.err << fmt::format("train from them with: moetwin run {} --weights {}\n", arguments.out,
                            out);
  return 0;
}

int run_import(const ImportArguments& arguments, const Output& output) {
  ScenarioDraft draft;
  const std::string weights = directory_of_weights(arguments.files);
  if (weights.empty() && !arguments.weights.empty())
    throw Error(ErrorClass::configuration,
                "--weights: none of the files is a directory with weights; legal: one with "
                "model.safetensors or its index");
  for (std::string file : arguments.files) {
    if (std::filesystem::is_directory(file)) file += "/config.json";
    const std::string text = text_of(file);
    const std::string kind = arguments.from == "auto" ? kind_of(file, text) : arguments.from;
    if (kind == "python") import_python(text, file, &draft);
    if (kind == "megatron") import_megatron(text, file, &draft);
    if (kind == "deepspeed") import_deepspeed(text, file, &draft);
    if (kind == "huggingface") import_huggingface(text, file, &draft);
  }
  std::filesystem::path first = arguments.files.front();
  if (!first.has_filename()) first = first.parent_path();  // models/mine/
  const ImportedScenario imported = draft.finish(first.string());
  if (arguments.out.empty()) {
    output.out << imported.text;
  } else {
    std::ofstream target(arguments.out, std::ios::binary);
    target << imported.text;
    if (!target.flush())
      throw Error(ErrorClass::configuration,
                  fmt::format("-o: cannot write '{}': {}", arguments.out, std::strerror(errno)));
    output.err << fmt::format("wrote {}\n", arguments.out);
  }
  output.err << fmt::format("{} keys taken over, {} left out{}\n", imported.kept,
                            imported.left_out.size(),
                            imported.left_out.empty() ? "" : " (kept as comments):");
  for (const std::string& line : imported.left_out) output.err << "  " << line << "\n";
  if (!imported.notes.empty()) output.err << "converted:\n";
  for (const std::string& line : imported.notes) output.err << "  " << line << "\n";
  if (!weights.empty() && (!arguments.out.empty() || !arguments.weights.empty())) {
    const int code = take_weights(arguments, imported, weights, output);
    if (imported.problems.empty()) return code;
  }
  if (!weights.empty() && arguments.out.empty() && arguments.weights.empty())
    output.err << fmt::format("weights of {} are not taken over without -o\n", weights);
  if (imported.problems.empty()) return 0;
  output.err << "moetwin: as a scenario this is not valid yet: " << imported.problems << "\n";
  return static_cast<int>(ErrorClass::configuration);
}

}  // namespace

void add_import(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("import", "Make a scenario from files of other training programs");
  verb->footer(
      "A Python file's literal dictionaries (.py), a launch script or list of Megatron's "
      "arguments,\n"
      "DeepSpeed's ds_config.json, Hugging Face's config.json; several files make one scenario, "
      "the\n"
      "later ones win. Of a directory as transformers saves models the weights are taken too.\n"
      "Nothing is executed. What has no counterpart is kept as comments and "
      "listed.\n"
      "Examples:\n"
      "  moetwin import train_config.py -o scenarios/mine.json\n"
      "  moetwin import dmoe_125m_8gpu.sh\n"
      "  moetwin import config.json ds_config.json -o scenarios/mixtral.json\n"
      "  moetwin import models/OLMoE-1B-7B -o olmoe.json\n"
      "  moetwin import train_config.py | less");
  auto arguments = std::make_shared<ImportArguments>();
  verb->add_option("FILE", arguments->files,
                   "Files to take over, or the directory of a Hugging Face model")
      ->required();
  verb->add_option("--from", arguments->from, "What the files are (default: by name and content)")
      ->check(CLI::IsMember({"auto", "python", "megatron", "deepspeed", "huggingface"}));
  verb->add_option("-o,--out", arguments->out, "Scenario file to write; else standard output")
      ->type_name("OUT");
  verb->add_option("--weights", arguments->weights,
                   "Checkpoint to write of a model's weights (default: OUT without .json and "
                   "-weights)")
      ->type_name("DIR");
  verb->callback([arguments, &action] {
    action = [arguments](const Output& output) { return run_import(*arguments, output); };
  });
}

}  // namespace moetwin
