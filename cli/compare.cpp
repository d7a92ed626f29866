// `moetwin compare A B [C...]`: runs side by side.

#include "analysis/compare/compare.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <memory>
#include <ostream>

#include "analysis/compare/render.h"
#include "cli/verbs.h"
#include "core/base/error.h"
#include "core/record/json_text.h"

namespace moetwin {
namespace {

struct CompareArguments {
  std::vector<std::string> runs;
  std::string format = "text", out;
  bool json = false;
  double tolerance = -1;
};

int run_compare(const CompareArguments& a, const Output& output) {
  std::vector<Run> runs;
  for (const std::string& path : a.runs) runs.push_back(read_run(path));
  const Comparison comparison = compare(std::move(runs));
  const std::string format = a.json ? "json" : a.format;
  const std::string text = format == "json"       ? json_text(comparison_json(comparison))
                           : format == "csv"      ? comparison_csv(comparison)
                           : format == "markdown" ? comparison_markdown(comparison)
                                                  : comparison_text(comparison);
  if (a.out.empty()) {
    output.out << text;
  } else {
    std::ofstream file(a.out, std::ios::binary);
    file << text;
    file.close();
    if (!file) throw Error(ErrorClass::configuration, a.out + ": cannot be written");
  }
  // Without --tolerance only what is more than noise counts; with it, single values do too.
  for (const PairComparison& pair : comparison.pairs)
    if (beyond_tolerance(pair, std::max(0.0, a.tolerance), a.tolerance >= 0))
      return static_cast<int>(ErrorClass::comparison);
  return 0;
}

}  // namespace

void add_compare(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand(
      "compare", "Set runs side by side and say which differences are more than noise");
  auto a = std::make_shared<CompareArguments>();
  verb->add_option("RUN", a->runs, "Run directories; each is compared with the first")
      ->required()
      ->expected(2, 100);
  verb->add_option("--format", a->format, "text, markdown, json or csv")
      ->check(CLI::IsMember({"text", "markdown", "json", "csv"}));
  verb->add_flag("--json", a->json, "The same as --format json");
  verb->add_option("--out,-o", a->out, "Write into this file")->type_name("FILE");
  verb->add_option("--tolerance", a->tolerance,
                   "Exit code 1 only when a figure differs by more than this share (0.02: 2%); "
                   "then figures of one value count too. Without it: 1 for any difference beyond "
                   "noise")
      ->check(CLI::NonNegativeNumber)
      ->type_name("SHARE");
  verb->footer(
      "Examples:\n"
      "  moetwin compare runs/before runs/after\n"
      "  moetwin compare runs/modelled runs/measured --format markdown -o comparison.md\n"
      "  moetwin compare runs/main runs/branch --tolerance 0.02    (a gate: exit code 0 or 1)");
  verb->callback(
      [a, &action] { action = [a](const Output& output) { return run_compare(*a, output); }; });
}

}  // namespace moetwin
