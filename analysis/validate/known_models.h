#pragma once
// Shapes of well-known models, for tables without the columns: from the models' own published
// configurations.

#include <string>

namespace moetwin {

struct KnownModel {
  const char* name;                                 ///< lower case; the model's name begins with it
  int layers, hidden, heads, kv_heads, ffn, vocab;  ///< ffn: dense layers'; 0: has none
};

/// Null: not known.
const KnownModel* known_model(const std::string& name);

}  // namespace moetwin
