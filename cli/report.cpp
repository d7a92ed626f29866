// `moetwin report RUN...`: the page of one run, or of several beside each other.

#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "analysis/export/json_lines.h"
#include "analysis/export/tensorboard.h"
#include "analysis/page/page.h"
#include "cli/verbs.h"
#include "core/base/error.h"
#include "core/record/output_file.h"

namespace moetwin {
namespace {

struct ReportArguments {
  std::vector<std::string> runs;
  std::string out, tensorboard, json_lines;
};

void write(const std::string& path, const std::string& text) {
  OutputFile file(path);
  file.write(text);
  file.commit();
}

/// Each run under its own name where there are several.
std::string place(const ReportArguments& a, const std::string& directory, const Run& run) {
  return a.runs.size() == 1 ? directory : directory + "/" + run.name;
}

int run_report(const ReportArguments& a, const Output& output) {
  std::vector<Run> runs;
  for (const std::string& path : a.runs) runs.push_back(read_run(path));
  if (!a.tensorboard.empty())
    for (const Run& run : runs)
      output.out << write_tensorboard(run, place(a, a.tensorboard, run)) << "\n";
  if (!a.json_lines.empty()) {
    if (runs.size() > 1) throw Error(ErrorClass::configuration, "--json-lines takes one run");
    write(a.json_lines, json_lines(runs[0]));
    output.out << a.json_lines << "\n";
  }
  // Asked for another form only: no page.
  if ((!a.tensorboard.empty() || !a.json_lines.empty()) && a.out.empty()) return 0;
  const std::string path = !a.out.empty()      ? a.out
                           : a.runs.size() > 1 ? std::string("comparison.html")
                                               : runs[0].file("report.html");
  write(path, report_page(runs));
  output.out << path << "\n";
  return 0;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("report", "Write a page with verdicts and charts that opens offline");
  auto a = std::make_shared<ReportArguments>();
  verb->add_option("RUN", a->runs, "Run directories; several are set beside the first")
      ->required()
      ->expected(1, 12);
  verb->add_option("-o,--out", a->out,
                   "The page's file (default: RUN/report.html; comparison.html for several runs)")
      ->type_name("FILE");
  verb->add_option("--tensorboard", a->tensorboard, "Write TensorBoard event files here instead")
      ->type_name("DIR");
  verb->add_option("--json-lines", a->json_lines, "Write one JSON object per step instead")
      ->type_name("FILE");
  verb->footer(
      "Examples:\n"
      "  moetwin report runs/quickstart\n"
      "  moetwin report runs/routing-oscillation runs/routing-oscillation-cured -o cured.html\n"
      "  moetwin report runs/quickstart --tensorboard logs    (then: tensorboard --logdir logs)");
  verb->callback(
      [a, &action] { action = [a](const Output& output) { return run_report(*a, output); }; });
}

}  // namespace moetwin
