// `moetwin import FILE.py`: a scenario from the literal dictionaries of a Python file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <fstream>
#include <memory>
#include <ostream>
#include <sstream>

#include "cli/verbs.h"
#include "core/base/error.h"
#include "core/scenario/import_python.h"

namespace moetwin {
namespace {

struct ImportArguments {
  std::string file, out;
};

int run_import(const ImportArguments& arguments, const Output& output) {
  std::ifstream file(arguments.file, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file)
    throw Error(ErrorClass::configuration,
                fmt::format("cannot read '{}': {}", arguments.file, std::strerror(errno)));
  const ImportedScenario imported = import_python(text.str(), arguments.file);
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
  if (imported.problems.empty()) return 0;
  output.err << "moetwin: as a scenario this is not valid yet: " << imported.problems << "\n";
  return static_cast<int>(ErrorClass::configuration);
}

}  // namespace

void add_import(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("import", "Make a scenario from the dictionaries of a Python file");
  verb->footer(
      "Literal dictionaries named model_config, distributed_config and so on are taken over;\n"
      "nothing is executed. What has no counterpart is kept as comments and listed.\n"
      "Examples:\n"
      "  moetwin import train_config.py -o scenarios/mine.json\n"
      "  moetwin import train_config.py | less");
  auto arguments = std::make_shared<ImportArguments>();
  verb->add_option("FILE", arguments->file, "Python file")->required();
  verb->add_option("-o,--out", arguments->out, "Scenario file to write; else standard output")
      ->type_name("OUT");
  verb->callback([arguments, &action] {
    action = [arguments](const Output& output) { return run_import(*arguments, output); };
  });
}

}  // namespace moetwin
