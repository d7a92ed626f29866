// `moetwin export RUN`: a checkpoint in the form that another program reads.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "cli/checkpoints.h"
#include "cli/verbs.h"
#include "core/base/units.h"
#include "core/train/huggingface/export_weights.h"

namespace moetwin {
namespace {

struct ExportArguments {
  std::string checkpoint, format = "huggingface";
  double shard_gigabytes = 5;
  ExportOptions options;
};

int run_export(const ExportArguments& a, const Output& output) {
  const Checkpoint checkpoint(find_checkpoint(a.checkpoint, "RUN"));
  checkpoint.verify();
  const Scenario scenario = scenario_of(checkpoint, {}, nullptr);
  ExportOptions options = a.options;
  options.shard_bytes = static_cast<int64_t>(a.shard_gigabytes * 1e9);
  const auto files = system_files();
  const ExportedModel model = export_huggingface(checkpoint, scenario, options, *files);
  output.err << fmt::format(
      "{} of step {}: {} in {}, {} tensors, {} in {} files: {}\n", checkpoint.directory(),
      checkpoint.manifest().position.step, model.model_type, model.dtype, model.tensors,
      format_bytes(static_cast<double>(model.bytes)), model.files.size(), options.directory);
  if (!model.left_out.empty()) output.err << "not in config.json, as it has no place for them:\n";
  for (const std::string& line : model.left_out) output.err << "  " << line << "\n";
  return 0;
}

}  // namespace

void add_export(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("export", "Write a checkpoint as other programs read models");
  verb->footer(
      "huggingface: config.json and safetensors that transformers loads as Mixtral, Qwen3-MoE,\n"
      "OLMoE or DeepSeek-V3, whichever computes what the scenario's model computes; a model that\n"
      "none of them computes is refused with the keys. Weights alone; no tokenizer.\n"
      "Examples:\n"
      "  moetwin export runs/first --out models/first\n"
      "  moetwin export runs/first/checkpoints/step-00000400 --dtype bf16 --out models/first");
  auto arguments = std::make_shared<ExportArguments>();
  verb->add_option("RUN", arguments->checkpoint, "A checkpoint, or a run directory: its newest one")
      ->required();
  verb->add_option("--format", arguments->format, "Form to write")
      ->check(CLI::IsMember({"huggingface"}));
  verb->add_option("--out", arguments->options.directory, "Directory to write; empty or not there")
      ->type_name("DIR")
      ->required();
  verb->add_option("--dtype", arguments->options.dtype, "Of the weights (default: the training's)")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  verb->add_option("--max-shard-gigabytes", arguments->shard_gigabytes,
                   "Bytes / 10^9 of one file at most (default 5)")
      ->type_name("GB")
      ->check(CLI::PositiveNumber);
  verb->callback([arguments, &action] {
    action = [arguments](const Output& output) { return run_export(*arguments, output); };
  });
}

}  // namespace moetwin
