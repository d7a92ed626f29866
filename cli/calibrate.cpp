// `moetwin calibrate`: a machine profile from measurements of a machine, or from others' logs.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <ostream>

#include "backends/cuda/probe/nvml.h"
#include "backends/sim/calibration/collectives_csv.h"
#include "backends/sim/calibration/gemm_csv.h"
#include "backends/sim/calibration/measure.h"
#include "backends/sim/calibration/nccl_tests.h"
#include "backends/sim/calibration/profile_json.h"
#include "cli/calibrate_text.h"
#include "cli/machines.h"
#include "cli/shipped.h"
#include "cli/text_file.h"
#include "cli/verbs.h"
#include "core/base/error.h"
#include "core/record/json_text.h"
#include "core/record/output_file.h"

namespace moetwin {
namespace {

struct CalibrateArguments {
  MachineOptions machine;
  std::string cluster, base, from, out, raw, dtype = "bf16", gpu;
  std::vector<std::string> files, series, only;
  NcclTestsOptions logs;
  std::string least_bytes, most_bytes;
  int64_t gpus = 0;
  bool tiny = false, json = false;
};

/// "1M", "64KiB", "4096": binary multiples, as nccl-tests' -b and -e.
double bytes_from(const std::string& option, const std::string& text) {
  size_t end = 0;
  double value = -1;
  try {
    value = std::stod(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  std::string unit = text.substr(end);
  for (const char* tail : {"iB", "B"})
    if (unit.size() > 1 && unit.ends_with(tail))
      unit.resize(unit.size() - std::string(tail).size());
  const std::string units = "KMG";
  const size_t power = unit.size() == 1 ? units.find(unit[0]) : std::string::npos;
  if (end == 0 || value <= 0 || !(unit.empty() || unit == "B" || power != std::string::npos))
    throw Error(
        ErrorClass::configuration,
        fmt::format("{} \"{}\" is no number of bytes; legal: 4096, 64K, 1M, 8G", option, text));
  for (size_t i = 0; power != std::string::npos && i <= power; ++i) value *= 1024;
  return value;
}

int64_t gpus_to_use(const CalibrateArguments& a, const ClusterProfile& profile) {
  if (a.gpus > 0) return a.gpus;
  // Two nodes show both kinds of links.
  if (a.machine.backend == "sim")
    return profile.max_nodes == 1 ? profile.gpus_per_node : 2 * profile.gpus_per_node;
  if (const char* world = std::getenv("WORLD_SIZE")) return std::max(1L, std::atol(world));
  return std::max<int64_t>(1, static_cast<int64_t>(Nvml().gpus().size()));
}

Scenario scenario_of(const CalibrateArguments& a) {
  Scenario s;
  s.name = "calibrate";
  s.training_config.numerics = a.machine.backend == "sim" ? "none" : "full";
  s.training_config.dtype = a.dtype;
  if (!a.cluster.empty()) s.cluster.profile = a.cluster;
  const int64_t gpus =
      gpus_to_use(a, a.machine.backend == "sim" ? machine_profile(s) : ClusterProfile());
  s.distributed_config.world_size = s.distributed_config.data_parallel_size = gpus;
  s.training_config.global_batch_size = gpus;
  return s;
}

/// Empty in a process that does not keep the record.
std::unique_ptr<Measurements> measured(const CalibrateArguments& a, std::ostream& log) {
  const Scenario scenario = scenario_of(a);
  const RunMachine machine = make_machine(
      scenario, a.machine, [&log](const std::string& line) { log << line << "\n"; }, nullptr);
  auto result = std::make_unique<Measurements>();
  result->machine = machine.cluster->description();
  const DType dtype = parse_dtype(a.dtype);
  machine.cluster->run([&](Backend& device) {
    MeasureSizes sizes = a.tiny ? tiny_sizes() : sizes_for(device.properties(), dtype);
    sizes.dtype = dtype;
    measure(device, sizes, *result);
  });
  return machine.is_first ? std::move(result) : nullptr;
}

std::unique_ptr<Measurements> from_files(const CalibrateArguments& a, const ClusterProfile& base,
                                         std::ostream& log) {
  if (a.files.empty())
    throw Error(ErrorClass::configuration, fmt::format("--from {} needs files to read", a.from));
  auto all = std::make_unique<Measurements>();
  std::vector<std::string> problems;
  for (const std::string& file : a.files) {
    const size_t equals = a.from == "nccl-tests" ? file.find('=') : std::string::npos;
    const std::string path = equals == std::string::npos ? file : file.substr(equals + 1);
    const std::string text = text_file(path);
    if (a.from == "nccl-tests") {
      NcclTestsLog one = read_nccl_tests(text, file, base.gpus_per_node, a.logs);
      problems.insert(problems.end(), one.problems.begin(), one.problems.end());
      for (CollectiveMeasurement& m : one.measurements) all->collectives.push_back(std::move(m));
      all->machine += (all->machine.empty() ? "" : "; ") +
                      fmt::format("{} of {} GPUs on {} node{}{}", collective_name(one.kind),
                                  one.ranks, one.nodes, one.nodes == 1 ? "" : "s",
                                  one.device.empty() ? "" : ", " + one.device);
    } else if (a.from == "collectives") {
      for (CollectiveMeasurement& m :
           read_collectives_csv(text, path, a.gpu, a.series, a.logs.least_bytes, a.logs.most_bytes,
                                base.gpus_per_node, problems))
        all->collectives.push_back(std::move(m));
      all->machine = fmt::format(
          "{}{}", path, a.series.empty() ? "" : " " + fmt::format("{}", fmt::join(a.series, " ")));
    } else {
      for (KernelMeasurement& m : read_gemm_csv(text, path, a.gpu, problems))
        all->kernels.push_back(std::move(m));
      all->machine = path;
      all->dtype = all->kernels.front().kernels.front().dtype;
    }
  }
  for (const std::string& problem : problems) log << "warning: " << problem << "\n";
  return all;
}

std::unique_ptr<Measurements> from_measurements(const CalibrateArguments& a) {
  if (a.files.size() != 1)
    throw Error(ErrorClass::configuration, "--from measurements takes one file");
  return std::make_unique<Measurements>(measurements_from(json_file(a.files[0]), a.files[0]));
}

/// The profile whose GPU's model ("A100") is named by the device; dgx-h100 where none is.
std::string base_for(const CalibrateArguments& a, const std::string& device) {
  if (!a.base.empty()) return a.base;
  if (!a.cluster.empty()) return a.cluster;
  for (const char* name : {"dgx-a100-40g", "dgx-a100-80g", "dgx-h100"}) {
    const std::string gpu =
        read_cluster_profile(name, shipped_directories({}, "clusters")).gpu.name;
    const std::string model = gpu.substr(0, gpu.find('-'));
    const std::string memory = gpu.substr(gpu.rfind('-') + 1);
    if (device.find(model) != std::string::npos && device.find(memory) != std::string::npos)
      return name;
  }
  return "dgx-h100";
}

int run_calibrate(CalibrateArguments a, const Output& output) {
  if (!a.least_bytes.empty()) a.logs.least_bytes = bytes_from("--min-bytes", a.least_bytes);
  if (!a.most_bytes.empty()) a.logs.most_bytes = bytes_from("--max-bytes", a.most_bytes);
  if (a.from.empty() && !a.files.empty())
    throw Error(
        ErrorClass::configuration,
        fmt::format("\"{}\" is given without --from; legal: --from nccl-tests, --from collectives, "
                    "--from gemm, --from measurements",
                    a.files[0]));
  std::unique_ptr<Measurements> m;
  if (a.from.empty()) m = measured(a, output.err);
  if (a.from == "measurements") m = from_measurements(a);
  const bool read_logs = a.from == "nccl-tests" || a.from == "gemm" || a.from == "collectives";
  if (a.from.empty() && !m) return 0;  // another process of the job writes
  const std::string base_name = base_for(a, m ? m->device_name : "");
  const ClusterProfile base = read_cluster_profile(base_name, shipped_directories({}, "clusters"));
  if (read_logs) m = from_files(a, base, output.err);
  if (!a.raw.empty()) {
    OutputFile raw(a.raw);
    raw.write(json_text(measurements_json(*m)));
    raw.commit();
  }
  const std::string from = a.from.empty() || a.from == "measurements"
                               ? "moetwin calibrate on " + m->machine
                               : a.from + " (" + m->machine + ")";
  const FitResult fit = fit_profile(*m, base, from, a.only);
  if (a.json)
    output.out << json_text(fit_json(fit, base));
  else
    output.out << fit_text(fit, base, *m);
  if (a.out.empty()) return 0;
  const std::string description =
      fmt::format("Calibrated from {}; what was not measured is of {}", m->machine, base.name);
  const std::string text = profile_text(base.text, description, m->device_name, fit.figures);
  parse_cluster_profile(text, a.out);  // before anything is written: it must be readable
  OutputFile file(a.out);
  file.write(text);
  file.commit();
  output.err << fmt::format("wrote {}: use it with --set cluster.profile={}\n", a.out, a.out);
  return 0;
}

}  // namespace

void add_calibrate(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand(
      "calibrate", "Measure a machine, or read others' logs, and fit a machine profile to it");
  auto a = std::make_shared<CalibrateArguments>();
  verb->add_option("FILE", a->files, "Logs or tables to read, with --from")->expected(0, 1000);
  verb->add_option("--backend", a->machine.backend,
                   "The machine to measure: cuda (this one) or sim (a modelled one, as a check)")
      ->check(CLI::IsMember({"sim", "cuda"}));
  verb->add_option("--cluster", a->cluster, "sim: profile of the machine that is measured")
      ->type_name("PROFILE");
  verb->add_option("--gpus", a->gpus, "GPUs to use (default: cuda: all here; sim: two nodes)")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  verb->add_option("--dtype", a->dtype, "Type of the products whose peak is published")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  verb->add_option("--from", a->from, "Read files instead of measuring")
      ->check(CLI::IsMember({"nccl-tests", "collectives", "gemm", "measurements"}));
  verb->add_option("--base", a->base,
                   "Profile with the peaks, and with every figure that is not measured")
      ->type_name("PROFILE");
  verb->add_option("--min-bytes", a->least_bytes,
                   "nccl-tests, collectives: smallest size to fit (64K, 1M)")
      ->type_name("SIZE");
  verb->add_option("--max-bytes", a->most_bytes, "nccl-tests, collectives: largest size to fit")
      ->type_name("SIZE");
  verb->add_flag("--in-place", a->logs.in_place, "nccl-tests: fit the in-place columns");
  verb->add_option("--ranks", a->logs.ranks, "nccl-tests: GPUs, where the log does not list them")
      ->type_name("N");
  verb->add_option("--nodes", a->logs.nodes, "nccl-tests: nodes, where the log does not list them")
      ->type_name("N");
  verb->add_option("--gpu", a->gpu, "gemm, collectives: only rows whose column gpu has this in it")
      ->type_name("TEXT");
  verb->add_option("--series", a->series,
                   "collectives: only rows whose column series begins with one of these")
      ->type_name("TEXT,...")
      ->delimiter(',');
  verb->add_option("--only", a->only,
                   "Of links and NCCL, fit only figures whose key has one of these in it (nic: "
                   "between nodes)")
      ->type_name("TEXT,...")
      ->delimiter(',');
  verb->add_option("-o,--out", a->out, "The profile to write (default: only show the fit)")
      ->type_name("FILE");
  verb->add_option("--raw", a->raw, "Write the measurements too, for --from measurements")
      ->type_name("FILE");
  verb->add_flag("--tiny", a->tiny, "Sizes that show that everything works and measure nothing");
  verb->add_flag("--json", a->json, "Print figures and residuals as JSON");
  verb->footer(
      "Examples:\n"
      "  moetwin calibrate --backend cuda -o my-node.json\n"
      "  moetwin calibrate --backend sim --cluster dgx-a100-80g\n"
      "  moetwin calibrate --from nccl-tests all_reduce.log alltoall.log -o my-links.json\n"
      "  moetwin calibrate --from nccl-tests all_gather=run7.txt --min-bytes 1M --base dgx-h100");
  verb->callback(
      [a, &action] { action = [a](const Output& output) { return run_calibrate(*a, output); }; });
}

}  // namespace moetwin
