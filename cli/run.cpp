// `moetwin run FILE`: trains a scenario on a machine and records what happened.

#include "analysis/result/run.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <ostream>

#include "analysis/judge.h"
#include "analysis/page/page.h"
#include "cli/checkpoints.h"
#include "cli/environment.h"
#include "cli/fault_costs.h"
#include "cli/live_verdicts.h"
#include "cli/machines.h"
#include "cli/proxy.h"
#include "cli/scenario_arguments.h"
#include "cli/verbs.h"
#include "core/base/error.h"
#include "core/moe/routing_trace.h"
#include "core/record/json_text.h"
#include "core/record/progress.h"
#include "core/record/recorder.h"
#include "core/record/remote.h"
#include "core/record/summary.h"
#include "core/scenario/read.h"
#include "core/train/checkpoint/resume.h"
#include "core/train/data.h"
#include "core/train/train.h"

namespace moetwin {
namespace {

struct RunArguments {
  ScenarioArguments scenario;
  MachineOptions machine;
  std::string out, numerics, fidelity, resume, weights;
  int64_t seed = -1, gpus = 0;
  bool quiet = false, json = false;
  std::vector<std::string> stop_on;
};

// The one thing a signal handler may touch.
std::atomic<int> caught_signal{0};
void remember_signal(int number) { caught_signal = number; }

/// One answer per step for all ranks, whichever asks first; processes agree. `wanted`: what this
/// process has besides signals.
class StopDecision {
 public:
  StopDecision(std::function<bool(bool)> any, std::function<bool(int64_t)> wanted)
      : any_(std::move(any)), wanted_(std::move(wanted)) {}
  bool after(int64_t step) {
    const std::lock_guard lock(mutex_);
    const auto it = decided_.find(step);
    if (it != decided_.end()) return it->second;
    return decided_[step] = any_(caught_signal != 0 || (wanted_ && wanted_(step)));
  }

 private:
  std::function<bool(bool)> any_;
  std::function<bool(int64_t)> wanted_;
  std::mutex mutex_;
  std::map<int64_t, bool> decided_;
};

/// What the options say, as overrides of the scenario's keys.
void apply_options(RunArguments& a) {
  auto& set = a.scenario.overrides;
  if (!a.numerics.empty()) set.push_back("training_config.numerics=" + a.numerics);
  if (!a.fidelity.empty()) set.push_back("cluster.fidelity=" + a.fidelity);
  if (a.seed >= 0) set.push_back("training_config.seed=" + std::to_string(a.seed));
}

/// The scenario of the file, or without one that of the checkpoint to go on from.
Scenario scenario_of(const RunArguments& a, const Checkpoint* resumed,
                     std::vector<std::string>* warnings) {
  if (a.scenario.file.empty() && resumed)
    return scenario_of(*resumed, a.scenario.overrides, warnings);
  return read_scenario(a.scenario, warnings);
}

/// --gpus: as many GPUs as asked for by more or fewer data-parallel copies; micro-batches per rank
/// stay as they are. Returns what it did, in a line; empty: nothing.
std::string apply_gpus(RunArguments& a, const Checkpoint* resumed) {
  if (a.gpus == 0) return "";
  const Scenario original = scenario_of(a, resumed, nullptr);
  const DistributedConfig& d = original.distributed_config;
  const int64_t copies = d.parallel_folding && d.dense_data_parallel_size > 0
                             ? std::gcd(d.data_parallel_size, d.dense_data_parallel_size)
                             : d.data_parallel_size;
  const int64_t copy = d.world_size / copies;
  if (a.gpus % copy != 0)
    throw Error(ErrorClass::configuration,
                fmt::format("--gpus {}: one copy of the model takes {} GPUs ({} ranks / "
                            "data_parallel_size {}); legal: multiples of {}",
                            a.gpus, copy, d.world_size, copies, copy));
  auto& set = a.scenario.overrides;
  const auto scaled = [&](int64_t size) { return size / copies * (a.gpus / copy); };
  set.push_back("distributed_config.world_size=" + std::to_string(a.gpus));
  set.push_back("distributed_config.data_parallel_size=" +
                std::to_string(scaled(d.data_parallel_size)));
  if (d.dense_data_parallel_size > 0)
    set.push_back("distributed_config.dense_data_parallel_size=" +
                  std::to_string(scaled(d.dense_data_parallel_size)));
  if (original.cluster.nodes > 0) set.push_back("cluster.nodes=0");
  std::string done = fmt::format("--gpus {}: data_parallel_size {} instead of {}", a.gpus,
                                 scaled(d.data_parallel_size), d.data_parallel_size);
  if (original.cluster.nodes > 0) done += ", as many nodes as that takes";
  // A batch that the command line names is meant as it stands.
  for (const std::string& override_ : set)
    if (override_.rfind("training_config.global_batch_size=", 0) == 0) return done;
  const int64_t batch = original.training_config.global_batch_size;
  if (batch * a.gpus % d.world_size != 0)
    throw Error(ErrorClass::configuration,
                fmt::format("--gpus {}: global_batch_size {} scaled by {}/{} is not whole; legal: "
                            "multiples of {}, or --set training_config.global_batch_size=N",
                            a.gpus, batch, a.gpus, d.world_size,
                            std::lcm(copy, d.world_size / std::gcd(batch, d.world_size))));
  const int64_t new_batch = batch * a.gpus / d.world_size;
  set.push_back("training_config.global_batch_size=" + std::to_string(new_batch));
  return done + fmt::format(", global_batch_size {} instead of {}", new_batch, batch);
}

std::string default_directory(const Scenario& scenario, const std::string& backend) {
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  return fmt::format("runs/{}-{}-{:%Y%m%d-%H%M%S}", scenario.name, backend, now);
}

std::string run_directory(const RunArguments& a, const Scenario& scenario) {
  const std::string named = !a.out.empty() ? a.out : scenario.output.directory;
  return !named.empty() ? named : default_directory(scenario, a.machine.backend);
}

// What a post of another process is for: its first byte.
constexpr char kRecordPost = 'R', kCheckpointPost = 'C';
std::function<void(const std::string&)> tagged(const std::function<void(const std::string&)>& post,
                                               char tag) {
  return [post, tag](const std::string& bytes) { post(tag + bytes); };
}

/// A process of a job whose record another process keeps.
int run_beside(const Scenario& scenario, const Grid& grid, const TokenSource* data,
               const RunMachine& machine, const Checkpoint* resumed, const std::string& directory,
               FileOperations& files) {
  RemoteSink sink(scenario, tagged(machine.post, kRecordPost));
  const auto writer = make_checkpoint_writer(scenario, machine, directory, files, resumed, nullptr,
                                             tagged(machine.post, kCheckpointPost));
  StopDecision stop([&machine](bool mine) { return machine.any(mine); }, nullptr);
  caught_signal = 0;
  TrainerServices services;
  services.data = data;
  services.recorder = &sink;
  services.trace = load_trace(scenario);
  services.checkpoints = writer.get();
  services.resume = resumed;
  services.stop_after = [&stop](int64_t step) { return stop.after(step); };
  std::signal(SIGTERM, remember_signal);
  std::signal(SIGINT, remember_signal);
  std::once_flag agreed;
  machine.cluster->run([&](Backend& device) {
    std::call_once(agreed, [&] { agree(resumed, writer.get(), machine); });
    train_rank(device, scenario, grid, services);
  });
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGINT, SIG_DFL);
  return caught_signal != 0 ? 128 + caught_signal : 0;
}

int run(RunArguments a, const Output& output) {
  apply_options(a);
  const std::unique_ptr<Checkpoint> resumed =
      a.weights.empty() ? open_resume(a.resume) : open_weights(a.weights);
  const std::string rescaled = apply_gpus(a, resumed.get());
  std::vector<std::string> warnings;
  Scenario scenario = scenario_of(a, resumed.get(), &warnings);
  train_proxy(scenario, output, a.quiet);
  const Grid grid(scenario.distributed_config, scenario.model_config.moe_layer_config.num_experts,
                  scenario.model_config.expert_width());
  const bool numerics = scenario.training_config.numerics == "full";
  // First: these runs are forked off, which a process with threads cannot do.
  std::optional<FaultCosts> without;
  if (a.machine.backend == "sim" && scenario.cluster.fidelity != "representative" && !numerics)
    without = without_faults(scenario);

  const auto started = std::chrono::steady_clock::now();
  const auto wall = [started] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  };
  const std::unique_ptr<TokenSource> data = numerics ? open_data(scenario) : nullptr;
  if (resumed)
    for (std::string& line :
         check_resume(scenario, resumed->manifest(), data ? data->sequences(Split::train) : 0))
      warnings.push_back(std::move(line));
  for (const std::string& warning : warnings) output.err << "warning: " << warning << "\n";
  const bool live = is_terminal(output.err);
  Progress progress(scenario.training_config.steps, output.err, live, wall);
  const RunMachine machine = make_machine(
      scenario, a.machine,
      [&](const std::string& line) {
        if (!a.quiet) output.err << line << "\n";
      },
      a.quiet ? std::function<void(double)>()
              : [&progress](double share) { progress.within_first(share); });
  const auto& cluster = machine.cluster;
  const std::string directory = run_directory(a, scenario);
  const auto files = system_files();
  if (!machine.is_first)
    return run_beside(scenario, grid, data.get(), machine, resumed.get(), directory, *files);

  RunInfo info;
  info.directory = directory;
  info.backend = a.machine.backend;
  info.cluster = cluster->description();
  info.device = cluster->device();
  info.settings = scenario_to_json(scenario);
  info.notes = warnings;
  if (!rescaled.empty()) info.notes.push_back(rescaled);
  if (data) info.notes.push_back("data: " + data->description());
  if (!numerics && scenario.routing.source == "learned" &&
      scenario.model_config.num_moe_layers() > 0)
    info.notes.push_back("routing: numerics are off, so `" + scenario.routing.without_numerics +
                         "` counts stand in for the learned router");
  if (resumed)
    info.notes.push_back(a.weights.empty()
                             ? fmt::format("resumed from {} after step {}", resumed->directory(),
                                           resumed->manifest().position.step)
                             : fmt::format("weights from {}", resumed->directory()));
  const int64_t every = scenario.output.log_every, last = scenario.training_config.steps;
  LiveVerdicts verdicts(stability_options(scenario, grid), a.stop_on);
  if (!a.quiet || !a.stop_on.empty())
    info.on_step = [&, quiet = a.quiet](const StepRow& row) {
      const std::vector<std::string> begun = verdicts.add(row);
      if (quiet) return;
      if (live || row.step == 1 || row.step % every == 0 || row.step == last) progress.show(row);
      for (const std::string& line : begun) progress.say(line);
    };
  Recorder recorder(scenario, grid, info);

  const auto writer = make_checkpoint_writer(
      scenario, machine, directory, *files, resumed.get(),
      [&recorder](int64_t step) { return recorder.best_validation(step); }, nullptr);
  RemoteReceiver receiver(recorder);
  if (machine.on_post)
    machine.on_post([&receiver, &writer](const std::string& bytes) {
      if (bytes.front() == kRecordPost) return receiver.receive(bytes.substr(1));
      writer->receive(bytes.substr(1));
    });

  StopDecision stop([&machine](bool mine) { return machine.any(mine); },
                    [&verdicts](int64_t step) { return verdicts.ends_after(step); });
  caught_signal = 0;
  TrainerServices services;
  services.data = data.get();
  services.recorder = &recorder;
  services.trace = load_trace(scenario);
  services.checkpoints = writer.get();
  services.resume = resumed.get();
  services.stop_after = [&stop](int64_t step) { return stop.after(step); };
  const auto end_of_run = [&] {
    std::signal(SIGTERM, SIG_DFL);
    std::signal(SIGINT, SIG_DFL);
    progress.finish();
    RunEnd end;
    end.wall_seconds = wall();
    end.environment = environment_json();
    if (machine.environment) end.environment["gpus"] = machine.environment();
    end.judge = [&](Report& report) {
      if (without && report.steps_done == report.steps_asked && report.error.empty())
        report.fault_costs = against(*without, report.device_seconds);
      judge_run(info.directory, scenario, grid, report);
      if (!machine.verdicts) return;
      for (Verdict& verdict : machine.verdicts(report))
        report.verdicts.push_back(std::move(verdict));
    };
    return end;
  };
  try {
    std::once_flag agreed;
    if (machine.estimate) {
      std::signal(SIGTERM, remember_signal);
      std::signal(SIGINT, remember_signal);
      machine.estimate(scenario, grid, services);
    } else {
      const auto begun = [&] {
        // Here and not earlier: SimGrid's engine installs a handler of its own when it starts.
        std::signal(SIGTERM, remember_signal);
        std::signal(SIGINT, remember_signal);
        std::call_once(agreed, [&] { agree(resumed.get(), writer.get(), machine); });
      };
      if (machine.train)
        machine.train(scenario, grid, services, begun);
      else
        cluster->run([&](Backend& device) {
          if (device.properties().rank == 0) begun();
          std::call_once(agreed, [&] { agree(resumed.get(), writer.get(), machine); });
          train_rank(device, scenario, grid, services);
        });
    }
  } catch (const std::exception& error) {
    // The steps before are what a user looks at to find out why.
    RunEnd end = end_of_run();
    end.error = error.what();
    if (recorder.steps_done() > 0) {
      recorder.finish(end);
      write_report_page(info.directory);
      output.err << "Record of the steps before: " << info.directory << "\n";
    }
    throw;
  }
  const Report report = recorder.finish(end_of_run());
  const std::string page = write_report_page(info.directory);
  if (a.json) {
    output.out << json_text(report_json(report));
  } else if (!a.quiet) {
    output.out << summary(report) << "\nRun directory: " << info.directory << "\nPage: " << page
               << "\n";
    if (!a.machine.chakra_directory.empty())
      output.out << fmt::format("Chakra traces: {0}/step.RANK.et, groups: {0}/comm_groups.json\n",
                                a.machine.chakra_directory);
    if (writer && !writer->newest().empty())
      output.out << "Checkpoint: " << writer->newest() << "\n";
  }
  if (caught_signal != 0) return 128 + caught_signal;
  const Verdict* ended = verdicts.ended_by(report);
  if (!ended) return 0;
  output.err << fmt::format("moetwin: stopped by --stop-on {} after step {} of {}: {}\n",
                            ended->kind, report.steps_done, report.steps_asked,
                            verdict_line(*ended));
  return static_cast<int>(ErrorClass::stopped);
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("run", "Train a scenario on a modelled cluster or on GPUs");
  auto a = std::make_shared<RunArguments>();
  add_scenario_arguments(*verb, a->scenario);
  verb->add_option("--backend", a->machine.backend,
                   "The machine: sim (modelled) or cuda (real GPUs)")
      ->check(CLI::IsMember({"sim", "cuda"}));
  verb->add_option("--out", a->out, "Run directory (default: runs/NAME-BACKEND-TIME)")
      ->type_name("DIR");
  verb->add_option("--numerics", a->numerics,
                   "full: train for real; none: time, memory and traffic only")
      ->check(CLI::IsMember({"full", "none"}));
  verb->add_option("--fidelity", a->fidelity, "Network of the modelled cluster")
      ->check(CLI::IsMember({"representative", "fluid", "flow"}));
  verb->add_option("--gpus", a->gpus,
                   "Another number of GPUs: data-parallel copies and global batch follow")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  verb->add_option("--export-chakra", a->machine.chakra_directory,
                   "Write Chakra execution traces of the last step, one a rank, for ASTRA-sim; "
                   "with numerics none")
      ->type_name("DIR");
  verb->add_option("--seed", a->seed, "Another seed")->type_name("N");
  verb->add_option("--threads", a->machine.threads, "Workers for arithmetic (default: all cores)")
      ->type_name("N");
  verb->add_option(
          "--resume", a->resume,
          "Go on from a checkpoint, or from the newest of a run; FILE may be left out then")
      ->type_name("DIR");
  verb->add_option("--weights", a->weights,
                   "Begin at step 0 with the weights of a checkpoint, of a run, or of `import`")
      ->type_name("DIR")
      ->excludes("--resume");
  verb->add_option("--stop-on", a->stop_on,
                   "End the run, with exit code 7, when one of these verdicts begins to hold: " +
                       fmt::format("{}", fmt::join(stoppable_verdicts(), ", ")))
      ->type_name("VERDICT[,VERDICT]")
      ->delimiter(',')
      ->check(CLI::IsMember(stoppable_verdicts()));
  verb->add_flag("--quiet", a->quiet, "No progress, no summary");
  verb->add_flag("--json", a->json, "Print the report as JSON instead of the summary");
  verb->footer(
      "Examples:\n"
      "  moetwin run scenarios/quickstart.json\n"
      "  moetwin run scenarios/seed-high-ep.json --numerics none\n"
      "  moetwin run scenarios/quickstart.json --set training_config.steps=50 --out runs/short\n"
      "  moetwin run --resume runs/short --set training_config.steps=100\n"
      "  moetwin run scenarios/scale-64-experts.json --export-chakra traces\n"
      "  moetwin run scenarios/routing-oscillation.json --stop-on oscillating,diverging");
  verb->callback([a, &action] { action = [a](const Output& output) { return run(*a, output); }; });
}

}  // namespace moetwin
