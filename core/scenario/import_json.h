#pragma once
// Parts of a scenario from the JSON files of other programs: DeepSpeed's ds_config.json says how is
// trained, Hugging Face's config.json what the model is.

#include <string>

#include "core/scenario/draft.h"

namespace moetwin {

/// Which of the two a text is, by its keys: "deepspeed", "huggingface", or empty.
std::string json_kind(const std::string& text);

/// Throw Error(configuration) naming the file when it cannot be read.
void import_deepspeed(const std::string& text, const std::string& name, ScenarioDraft* draft);
void import_huggingface(const std::string& text, const std::string& name, ScenarioDraft* draft);

}  // namespace moetwin
