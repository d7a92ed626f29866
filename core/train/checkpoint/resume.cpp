#include "core/train/checkpoint/resume.h"

#include <fmt/format.h>

#include <string_view>

#include "core/base/error.h"
#include "core/scenario/read.h"
#include "core/scenario/source.h"

namespace moetwin {

namespace {

void refuse(const std::string& what) { throw Error(ErrorClass::configuration, what); }

void add_differences(const std::string& path, const Json::Value& was, const Json::Value& is,
                     std::vector<std::string>& lines) {
  if (was.isObject() && is.isObject()) {
    for (const std::string& name : is.getMemberNames())
      add_differences(path + "." + name, was[name], is[name], lines);
  } else if (was != is) {
    lines.push_back(fmt::format("resume: {} was {} when the checkpoint was saved, is {}", path,
                                value_text(was), value_text(is)));
  }
}

}  // namespace

std::vector<std::string> check_resume(const Scenario& scenario, const Manifest& manifest,
                                      int64_t data_sequences) {
  const TrainingConfig& training = scenario.training_config;
  const TrainingPosition& position = manifest.position;
  if (training.numerics != "full")
    refuse("--resume: training_config.numerics none has no state to go on with; legal: full");
  if (position.step >= training.steps)
    refuse(
        fmt::format("training_config.steps: {}: the checkpoint is of step {}; legal: more than "
                    "{}, e.g. --set training_config.steps={}",
                    training.steps, position.step, position.step, 2 * position.step));
  if (training.optimizer == "adamw" && manifest.optimizer == "sgd")
    refuse(
        "training_config.optimizer: adamw: the checkpoint was saved with sgd and has no moments; "
        "legal: sgd");
  std::vector<std::string> lines;
  const Json::Value is = scenario_to_json(scenario);
  const Json::Value& was = manifest.scenario;
  const bool weights_alone = manifest.optimizer == kWeightsAlone;
  for (const char* section : {"model_config", "routing", "data"})
    if (was.isMember(section) && (!weights_alone || section != std::string_view("data")))
      add_differences(section, was[section], is[section], lines);
  if (was.isMember("training_config") && !weights_alone) {
    for (const char* key : {"seed", "optimizer", "dtype"})
      add_differences(std::string("training_config.") + key, was["training_config"][key],
                      is["training_config"][key], lines);
  }
  if (position.data_sequences != 0 && position.data_sequences != data_sequences)
    lines.push_back(
        fmt::format("resume: the training data has {} sequences, had {} when the checkpoint was "
                    "saved: their order is another one from here on",
                    data_sequences, position.data_sequences));
  return lines;
}

}  // namespace moetwin
