#pragma once
// Megatron's command line as an importer takes it, argument by argument; what it does not take is
// left over.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/scenario/draft.h"

namespace moetwin {

class MegatronArguments {
 public:
  struct Argument {
    std::string name;  ///< without the dashes
    std::vector<std::string> values;
    int line = 0;
    bool used = false;
  };
  /// Reads a shell script, or a list of arguments. `file` is its name for messages. Throws
  /// Error(configuration) where there is no command with Megatron's arguments.
  MegatronArguments(std::string file, const std::string& text, ScenarioDraft* draft);

  /// The last of that name, as in argparse; null: not given.
  Argument* find(const std::string& name);
  /// Whether it is given. This and the next three mark what they find as used.
  bool flag(const std::string& name);
  std::optional<std::string> text(const std::string& name);
  /// Throws Error(configuration) with file and line when the value is no number.
  std::optional<double> number(const std::string& name);
  std::optional<int64_t> integer(const std::string& name);

  /// Lists it as having no counterpart.
  void leave(Argument& argument, const std::string& reason);
  void leave(const std::string& name, const std::string& reason);
  /// All that was not used.
  void leave_rest(const std::function<std::string(const std::string& name)>& reason);

 private:
  const std::string file_;
  ScenarioDraft& draft_;
  std::vector<Argument> arguments_;
};

/// Sizes of the process grid, stages, sharding and overlap. `spread_experts`: experts that are
/// spread over all data-parallel ranks (MegaBlocks); 0: as --expert-model-parallel-size says.
void import_megatron_layout(MegatronArguments& in, int64_t spread_experts, ScenarioDraft* draft);

}  // namespace moetwin
