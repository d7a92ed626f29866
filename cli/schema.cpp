// `moetwin schema`: the JSON Schema of scenarios, or their reference page.
#include "core/scenario/schema.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "cli/verbs.h"

namespace moetwin {

void add_schema(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("schema", "Print the JSON Schema of scenario files");
  verb->footer(
      "Examples:\n"
      "  moetwin schema > scenarios/scenario.schema.json\n"
      "  moetwin schema --markdown > docs/scenario-keys.md");
  auto markdown = std::make_shared<bool>(false);
  verb->add_flag("--markdown", *markdown, "Print the reference page of all keys instead");
  verb->callback([markdown, &action] {
    action = [markdown](const Output& output) {
      output.out << (*markdown ? scenario_keys_markdown() : scenario_schema_text());
      return 0;
    };
  });
}

}  // namespace moetwin
