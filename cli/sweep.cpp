// `moetwin sweep FILE --over key=a,b,c`: one scenario with several values of its keys.

#include "analysis/sweep/sweep.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <memory>
#include <ostream>
#include <sstream>
#include <thread>

#include "analysis/batch/processes.h"
#include "analysis/sweep/table.h"
#include "cli/proxy.h"
#include "cli/shipped.h"
#include "cli/text_table.h"
#include "cli/verbs.h"
#include "core/base/error.h"
#include "core/record/json_text.h"
#include "core/record/output_file.h"
#include "core/scenario/keys.h"
#include "core/scenario/read.h"
#include "core/scenario/source.h"

namespace moetwin {
namespace {

struct SweepArguments {
  std::string file, out, merge, backend = "sim", numerics, fidelity, rank_by = "tokens_per_second";
  std::vector<std::string> over, set;
  bool list = false, slurm = false, quiet = false;
  int jobs = 0;
  int64_t only = -1;
};

std::string shell_word(const std::string& text) {
  const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
  if (!text.empty() && text.find_first_not_of(plain) == text.npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

SweepPlan plan_of(const SweepArguments& a) {
  const KeyTable table = scenario_keys();
  SweepPlan plan;
  plan.scenario = a.file;
  plan.backend = a.backend;
  plan.combination = a.list ? Combination::list : Combination::grid;
  for (const std::string& text : a.over) {
    plan.axes.push_back(parse_axis(text));
    const std::string& key = plan.axes.back().key;
    if (table.find_key(key)) continue;
    const std::string nearest = nearest_key(table, key);
    throw Error(ErrorClass::configuration,
                fmt::format("--over {}: there is no such key{}", key,
                            nearest.empty() ? "" : "; did you mean " + nearest + "?"));
  }
  for (const std::string& text : a.set) plan.options.insert(plan.options.end(), {"--set", text});
  if (!a.numerics.empty()) plan.options.insert(plan.options.end(), {"--numerics", a.numerics});
  if (!a.fidelity.empty()) plan.options.insert(plan.options.end(), {"--fidelity", a.fidelity});
  plan.scenario_text = json_text(read_source(find_scenario(a.file), table).root);
  return plan;
}

/// The last thing a verb said went wrong, on one line.
std::string complaint(const std::string& said) {
  const size_t at = said.rfind("moetwin: ");
  if (at == said.npos) return "";
  std::string line = said.substr(at + 9);
  while (!line.empty() && line.back() == '\n') line.pop_back();
  for (size_t i = line.find('\n'); i != line.npos; i = line.find('\n', i + 2))
    line.replace(i, 1, "; ");
  return line;
}

/// Runs one point to its end and notes what came of it.
int run_point(const std::string& directory, const SweepPlan& plan, size_t index, int threads) {
  const std::vector<std::string> overrides = plan.points()[index];
  const std::string place = directory + "/" + point_directory(index);
  make_directory(place);
  std::vector<std::string> words{"run",   plan.scenario, "--backend", plan.backend,
                                 "--out", place,         "--threads", std::to_string(threads)};
  words.insert(words.end(), plan.options.begin(), plan.options.end());
  for (const std::string& text : overrides) words.insert(words.end(), {"--set", text});
  std::ofstream log(place + "/log.txt");
  std::ostringstream err;
  const int code = run_program(words, {log, err});
  log << err.str();
  finish_point(directory, index, overrides, code, code == 0 ? "" : complaint(err.str()));
  return code;
}

void print_slurm(const SweepArguments& a, const SweepPlan& plan, const std::string& directory,
                 std::ostream& out) {
  std::string command = "moetwin sweep " + shell_word(a.file);
  for (const std::string& text : a.over) command += " --over " + shell_word(text);
  if (a.list) command += " --list";
  for (const std::string& text : plan.options) command += " " + shell_word(text);
  if (a.backend != "sim") command += " --backend " + a.backend;
  command += " --out " + shell_word(directory);
  out << fmt::format(
      "#!/bin/bash\n"
      "#SBATCH --job-name=moetwin-sweep\n"
      "#SBATCH --array=0-{}\n"
      "#SBATCH --output={}/slurm-%a.log\n"
      "# Submit with sbatch where {} is visible; when all have ended:\n"
      "#   moetwin sweep --merge {}\n"
      "{} --only \"$SLURM_ARRAY_TASK_ID\"\n",
      plan.points().size() - 1, directory, directory, shell_word(directory), command);
}

void write_file(const std::string& path, const std::string& text) {
  OutputFile file(path);
  file.write(text);
  file.commit();
}

std::string point_text(const SweepPoint& point) {
  std::string text;
  for (const std::string& override_ : point.overrides)
    text +=
        (text.empty() ? "" : " ") + override_.substr(override_.rfind('.', override_.find('=')) + 1);
  return text;
}

bool readable(const std::string& file, const std::vector<std::string>& overrides,
              Scenario& scenario) {
  try {
    scenario = read_scenario(file, overrides);
  } catch (const Error& error) {
    if (error.error_class() != ErrorClass::configuration) throw;
    return false;
  }
  return true;
}

/// Table, CSV and page of what is there; the exit code.
int conclude(const std::string& directory, const SweepPlan& plan, const SweepFigure& figure,
             const Output& output) {
  const std::vector<SweepPoint> points = read_points(directory, plan);
  write_file(directory + "/sweep.csv", sweep_csv(plan, points));
  write_file(directory + "/sweep.html", sweep_page(plan, points, figure));
  const auto rows = sweep_rows(plan, points);
  std::vector<bool> left(rows[0].size(), false);
  left.back() = true;
  TextTable table(left);
  for (const auto& row : rows) table.row(row);
  table.print(output.out);
  const std::vector<const SweepPoint*> order = ranked(points, figure);
  if (!order.empty()) {
    const SweepPoint& best = *order.front();
    output.out << fmt::format("\nBest {}: {} with {} (point {})", figure.title,
                              sweep_text(sweep_value(best, figure), figure), point_text(best),
                              best.index);
    if (order.size() > 1)
      output.out << fmt::format("; next {} with {}",
                                sweep_text(sweep_value(*order[1], figure), figure),
                                point_text(*order[1]));
    output.out << "\n";
  }
  output.out << fmt::format("\nTable: {0}/sweep.csv\nPage: {0}/sweep.html\n", directory);
  size_t missing = 0;
  const SweepPoint* failed = nullptr;
  for (const SweepPoint& point : points) {
    missing += point.state == PointState::missing;
    if (point.state == PointState::failed && !failed) failed = &point;
  }
  if (failed) {
    output.err << fmt::format("moetwin: point {} failed with exit code {}: {}; see {}/{}/log.txt\n",
                              failed->index, failed->exit_code, failed->message, directory,
                              failed->directory);
    return failed->exit_code;
  }
  if (missing > 0) {
    output.err << fmt::format("moetwin: {} of {} points have not been run\n", missing,
                              points.size());
    return static_cast<int>(ErrorClass::fault);
  }
  if (order.empty() && !points.empty()) {
    output.err << fmt::format("moetwin: no point ran to its end; the first: {}\n",
                              points[0].message);
    return points[0].exit_code;
  }
  return 0;
}

int sweep(const SweepArguments& a, const Output& output) {
  const SweepFigure figure = sweep_figure(a.rank_by);
  if (!a.merge.empty()) return conclude(a.merge, read_sweep(a.merge), figure, output);
  if (a.file.empty())
    throw Error(ErrorClass::configuration,
                "sweep needs a scenario FILE, or --merge DIR of a sweep that has been run");
  if (a.over.empty())
    throw Error(ErrorClass::configuration, "sweep needs at least one --over key=value,value,...");
  const SweepPlan plan = plan_of(a);
  const size_t count = plan.points().size();
  const std::string stem = a.file.substr(a.file.rfind('/') + 1);
  const std::string directory =
      a.out.empty() ? "runs/sweep-" + stem.substr(0, stem.rfind('.')) : a.out;
  if (a.slurm) {
    print_slurm(a, plan, directory, output.out);
    return 0;
  }
  if (a.only >= static_cast<int64_t>(count))
    throw Error(ErrorClass::configuration,
                fmt::format("--only {}: the sweep has points 0 to {}", a.only, count - 1));
  open_sweep(directory, plan);
  // Once, and not by every point that needs it. What is wrong with a point is the point's to say.
  for (const std::vector<std::string>& overrides : plan.points()) {
    std::vector<std::string> all = a.set;
    if (!a.numerics.empty()) all.push_back("training_config.numerics=" + a.numerics);
    all.insert(all.end(), overrides.begin(), overrides.end());
    if (Scenario scenario; readable(find_scenario(a.file), all, scenario))
      train_proxy(scenario, output, a.quiet);
  }
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<size_t> open;
  for (const SweepPoint& point : read_points(directory, plan))
    if (a.only >= 0 ? point.index == static_cast<size_t>(a.only)
                    : point.state == PointState::missing)
      open.push_back(point.index);
  if (!a.quiet && a.only < 0 && open.size() < count)
    output.err << fmt::format("{} of {} points have been run before\n", count - open.size(), count);
  ProcessOptions processes;
  processes.processes = a.jobs > 0 ? a.jobs : cores;
  const int side_by_side = std::min<int>(processes.processes, static_cast<int>(open.size()));
  const int threads = std::max(1, cores / std::max(1, side_by_side));
  size_t ended = a.only < 0 ? count - open.size() : open.front();
  processes.on_done = [&](size_t job, const JobResult& result) {
    // A process that died said nothing itself.
    if (!result.ok)
      finish_point(directory, open[job], plan.points()[open[job]],
                   static_cast<int>(ErrorClass::internal), result.error);
    if (a.quiet) return;
    const SweepPoint point = read_point(directory, open[job], plan.points()[open[job]]);
    output.err << fmt::format(
        "{:>4} of {}  {}: {}\n", ++ended, count, point_text(point),
        point.state == PointState::done
            ? fmt::format("{} {}", figure.title, sweep_text(sweep_value(point, figure), figure))
            : point_state_name(point.state));
  };
  run_in_processes(
      open.size(),
      [&](size_t job) {
        run_point(directory, plan, open[job], threads);
        return std::string();
      },
      processes);
  if (a.only >= 0) return read_points(directory, plan)[open.front()].exit_code;
  return conclude(directory, plan, figure, output);
}

}  // namespace

void add_sweep(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("sweep", "Run a scenario with several values of its keys, side by side");
  auto a = std::make_shared<SweepArguments>();
  verb->add_option("FILE", a->file, "The scenario");
  verb->add_option("--over", a->over,
                   "A key and its values; of several --over every combination is run")
      ->type_name("KEY=A,B,...")
      ->take_all();
  verb->add_flag("--list", a->list,
                 "Not every combination: the first values together, the second ones, ...");
  verb->add_option("--set", a->set, "Another value of a key, for all points")
      ->type_name("KEY=VALUE")
      ->take_all();
  verb->add_option(
          "--out", a->out,
          "Directory of the sweep (default: runs/sweep-NAME); one that was stopped goes on")
      ->type_name("DIR");
  verb->add_option("--backend", a->backend, "The machine: sim (modelled) or cuda (real GPUs)")
      ->check(CLI::IsMember({"sim", "cuda"}));
  verb->add_option("--numerics", a->numerics, "full or none, as for `moetwin run`")
      ->check(CLI::IsMember({"full", "none"}));
  verb->add_option("--fidelity", a->fidelity, "Network of the modelled cluster")
      ->check(CLI::IsMember({"representative", "fluid", "flow"}));
  verb->add_option("--jobs,-j", a->jobs, "Runs at once (default: as many as there are cores)")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  verb->add_option("--rank-by", a->rank_by, "Figure that names the best point")
      ->type_name("FIGURE");
  verb->add_flag("--slurm", a->slurm, "Print a Slurm array script instead of running");
  verb->add_option("--only", a->only, "Run this point alone, from 0 (a task of the array)")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--merge", a->merge, "Only collect the points of this sweep that have been run")
      ->type_name("DIR");
  verb->add_flag("--quiet", a->quiet, "No progress");
  verb->footer(
      "Examples:\n"
      "  moetwin sweep scenarios/quickstart.json --numerics none --list \\\n"
      "      --over distributed_config.data_parallel_size=8,4,2,1 \\\n"
      "      --over distributed_config.expert_parallel_size=1,2,4,8\n"
      "  moetwin sweep scenarios/routing-oscillation.json --rank-by loss \\\n"
      "      --over model_config.moe_layer_config.aux_loss_factor=0,0.001,0.01,0.1\n"
      "  moetwin sweep FILE --over training_config.seed=1,2,3 --out DIR --slurm | sbatch\n"
      "  moetwin sweep --merge DIR");
  verb->callback(
      [a, &action] { action = [a](const Output& output) { return sweep(*a, output); }; });
}

}  // namespace moetwin
