// `moetwin schema`: the JSON Schema of scenarios or reports, or their reference pages.
#include "core/scenario/schema.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "analysis/result/report_fields.h"
#include "cli/verbs.h"

namespace moetwin {

void add_schema(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("schema", "Print the JSON Schema of scenarios or reports");
  verb->footer(
      "Examples:\n"
      "  moetwin schema > scenarios/scenario.schema.json\n"
      "  moetwin schema --markdown > docs/scenario-keys.md\n"
      "  moetwin schema --report --markdown > docs/report-fields.md");
  auto markdown = std::make_shared<bool>(false);
  auto report = std::make_shared<bool>(false);
  verb->add_flag("--markdown", *markdown, "Print the reference page of all keys instead");
  verb->add_flag("--report", *report, "Of report.json, which a run writes, not of scenarios");
  verb->callback([markdown, report, &action] {
    action = [markdown, report](const Output& output) {
      if (*report)
        output.out << (*markdown ? report_fields_markdown() : report_schema_text());
      else
        output.out << (*markdown ? scenario_keys_markdown() : scenario_schema_text());
      return 0;
    };
  });
}

}  // namespace moetwin
