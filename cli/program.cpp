#include "cli/program.h"

#include <CLI/CLI.hpp>
#include <exception>
#include <ostream>

#include "cli/verbs.h"
#include "core/base/error.h"

namespace moetwin {

std::vector<Verb> verbs() {
  return {
      {"run", add_run},
      {"sweep", add_sweep},
      {"plan", add_plan},
      {"check", add_check},
      {"topology", add_topology},
      {"import", add_import},
      {"export", add_export},
      {"diagnose", add_diagnose},
      {"compare", add_compare},
      {"report", add_report},
      {"doctor", add_doctor},
      {"schema", add_schema},
      {"calibrate", add_calibrate},
      {"validate", add_validate},
      {"completion", add_completion},
      {"manual", add_manual},
  };
}

int run_program(const std::vector<std::string>& arguments, const Output& output) {
  CLI::App app("moetwin trains Mixture-of-Experts transformers on a modelled cluster or on GPUs.",
               "moetwin");
  app.set_version_flag("--version", "moetwin " MOETWIN_VERSION);
  app.require_subcommand(0, 1);
  app.get_formatter()->column_width(34);
  app.footer(
      "`moetwin VERB --help` explains a verb. Exit codes: 0 done, 1 comparison beyond tolerance,\n"
      "2 configuration, 3 capacity or out of memory, 4 fault or timeout, 5 deadlock, 6 non-finite\n"
      "numbers, 7 stopped by --stop-on, 70 internal.");
  Action action;
  for (const Verb& verb : verbs()) verb.add(app, action);
  if (!arguments.empty() && arguments[0].compare(0, 1, "-") != 0) {
    std::string known;
    bool found = false;
    for (const Verb& verb : verbs()) {
      known += (known.empty() ? "" : ", ") + std::string(verb.name);
      found = found || arguments[0] == verb.name;
    }
    if (!found) {
      output.err << "moetwin: unknown verb '" << arguments[0] << "'; legal: " << known << "\n";
      return static_cast<int>(ErrorClass::configuration);
    }
  }
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::Success& success) {
    return app.exit(success, output.out, output.err);
  } catch (const CLI::ParseError& error) {
    output.err << "moetwin: " << error.what() << "; see `moetwin --help`\n";
    return static_cast<int>(ErrorClass::configuration);
  }
  if (!action) {
    output.err << app.help();
    return static_cast<int>(ErrorClass::configuration);
  }
  try {
    return action(output);
  } catch (const Error& error) {
    output.err << "moetwin: " << error.what() << "\n";
    return error.exit_code();
  } catch (const std::exception& error) {
    output.err << "moetwin: internal error: " << error.what() << "\n";
    return static_cast<int>(ErrorClass::internal);
  }
}

}  // namespace moetwin
