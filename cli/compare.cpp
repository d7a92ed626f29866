// `moetwin compare A B [C...]`: runs side by side.

#include "analysis/compare/compare.h"

#include <fmt/format.h>
#include <json/json.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <memory>
#include <ostream>

#include "analysis/compare/correction.h"
#include "analysis/compare/render.h"
#include "cli/machines.h"
#include "cli/verbs.h"
#include "core/base/error.h"
#include "core/record/json_text.h"
#include "core/record/output_file.h"

namespace moetwin {
namespace {

struct CompareArguments {
  std::vector<std::string> runs;
  std::string format = "text", out, profile;
  bool json = false;
  double tolerance = -1;
};

const Run& with_ops(const std::vector<Run>& runs, bool modelled, const char* what) {
  // Two modelled runs: the first is the prediction, the last what was measured.
  const auto fits = [&](const Run& run) {
    return (run.report["backend"].asString() == "sim") == modelled && run.has_file("timeline.json");
  };
  for (const Run& run : runs)
    if (fits(run)) return run;
  const Run& other = modelled ? runs.front() : runs.back();
  if (!modelled && other.has_file("timeline.json")) return other;
  throw Error(ErrorClass::configuration,
              fmt::format("--write-profile needs a {} run with a timeline.json; {} has none", what,
                          other.directory));
}

/// The profile that the modelled run used, corrected by what the measured run took.
void write_profile(const std::vector<Run>& runs, const std::string& path) {
  const Run& predicted = with_ops(runs, true, "modelled");
  const Run& measured = with_ops(runs, false, "measured");
  if (!predicted.scenario)
    throw Error(ErrorClass::configuration,
                predicted.file("report.json") + ": its settings name no cluster.profile");
  const std::string profile = machine_profile(*predicted.scenario).path;
  std::ifstream in(profile);
  Json::Value json;
  in >> json;
  const std::vector<Correction> found =
      corrections(read_op_lists(predicted), read_op_lists(measured));
  if (found.empty())
    throw Error(ErrorClass::configuration,
                fmt::format("--write-profile: the op lists of {} and {} have no op in common",
                            predicted.directory, measured.directory));
  OutputFile file(path);
  file.write(json_text(
      corrected_profile(json, found,
                        fmt::format("moetwin compare: {} against {} on {}", measured.name,
                                    predicted.name, measured.report["device"].asString()))));
  file.commit();
}

int run_compare(const CompareArguments& a, const Output& output) {
  std::vector<Run> runs;
  for (const std::string& path : a.runs) runs.push_back(read_run(path));
  if (!a.profile.empty()) write_profile(runs, a.profile);
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
  verb->add_option("--write-profile", a->profile,
                   "Write the machine profile of the modelled run with its times corrected, per "
                   "op, group and size, to those of the measured one (of two modelled runs: of the "
                   "last)")
      ->type_name("FILE");
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
      "  moetwin compare runs/main runs/branch --tolerance 0.02    (a gate: exit code 0 or 1)\n"
      "  moetwin compare runs/modelled runs/measured --write-profile corrected.json");
  verb->callback(
      [a, &action] { action = [a](const Output& output) { return run_compare(*a, output); }; });
}

}  // namespace moetwin
