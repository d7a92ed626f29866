// `moetwin topology FILE`: who is where, and in which groups.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <fstream>
#include <memory>
#include <ostream>

#include "cli/layout_text.h"
#include "cli/machines.h"
#include "cli/scenario_arguments.h"
#include "cli/text_table.h"
#include "cli/verbs.h"
#include "core/base/error.h"
#include "core/topology/grid.h"
#include "core/topology/layout_svg.h"

namespace moetwin {
namespace {

struct TopologyArguments {
  ScenarioArguments scenario;
  std::string svg, platform;
  int64_t gpus_per_node = 0;  ///< 0: as the cluster profile says
  bool all = false;
};

std::string experts_text(const Grid& grid, const ModelConfig& model, int64_t ep) {
  const std::string experts = experts_label(grid, ep), width = width_label(grid, model, ep);
  if (experts.empty()) return "none";
  return width.empty() ? experts : experts + ", " + width;
}

void print_ranks(std::ostream& out, const Grid& grid, const ModelConfig& model,
                 int64_t gpus_per_node, bool all) {
  constexpr int64_t kMost = 64;
  TextTable table({false, false, false, false, false, false, false, false, true});
  table.row({"rank", "node", "pp", "ddp", "tp", "edp", "ep", "etp", "of each MoE layer"});
  const int64_t shown = all ? grid.world() : std::min(grid.world(), kMost);
  for (int64_t rank = 0; rank < shown; ++rank) {
    const Coordinates at = grid.coordinates(rank);
    const auto text = [](int64_t x) { return fmt::format("{}", x); };
    table.row({text(rank), text(rank / gpus_per_node), text(at.pp), text(at.ddp), text(at.tp),
               text(at.edp), text(at.ep), text(at.etp), experts_text(grid, model, at.ep)});
  }
  table.print(out);
  if (shown < grid.world())
    out << fmt::format("  and {} more ranks (--all shows them)\n", grid.world() - shown);
}

int run_topology(const TopologyArguments& arguments, const Output& output) {
  std::vector<std::string> warnings;
  const Scenario s = read_scenario(arguments.scenario, &warnings);
  const ModelConfig& m = s.model_config;
  const Grid grid(s.distributed_config, m.moe_layer_config.num_experts, m.expert_width());
  int64_t gpus_per_node = arguments.gpus_per_node;
  std::string where = "--gpus-per-node";
  if (gpus_per_node == 0) {
    gpus_per_node = machine_profile(s).gpus_per_node;
    where = s.cluster.profile;
  }
  print_grids(output.out, grid, m);
  output.out << fmt::format("Nodes        {} of {} GPUs ({})\n",
                            (grid.world() + gpus_per_node - 1) / gpus_per_node, gpus_per_node,
                            where);
  output.out << "\nGroups\n";
  print_groups(output.out, grid, arguments.all ? static_cast<size_t>(grid.world()) : 16);
  output.out << "\nRanks\n";
  print_ranks(output.out, grid, m, gpus_per_node, arguments.all);
  const auto write = [&](const char* option, const std::string& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary);
    file << text;
    if (!file.flush())
      throw Error(ErrorClass::configuration,
                  fmt::format("{}: cannot write '{}': {}", option, path, std::strerror(errno)));
    output.err << "wrote " << path << "\n";
  };
  if (!arguments.svg.empty())
    write("--svg", arguments.svg, layout_svg(grid, m, s.name, gpus_per_node));
  if (!arguments.platform.empty()) write("--platform", arguments.platform, machine_platform(s));
  return 0;
}

}  // namespace

void add_topology(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("topology", "Print the process grids, groups and ranks of a scenario");
  verb->footer(
      "Examples:\n"
      "  moetwin topology scenarios/quickstart.json\n"
      "  moetwin topology scenarios/seed-high-ep.json --svg layout.svg\n"
      "  moetwin topology scenarios/seed-high-ep.json --platform cluster.xml");
  auto arguments = std::make_shared<TopologyArguments>();
  add_scenario_arguments(*verb, arguments->scenario);
  verb->add_option("--svg", arguments->svg, "Write a picture of the layout")->type_name("OUT");
  verb->add_option("--platform", arguments->platform,
                   "Write the modelled cluster as a SimGrid platform (XML)")
      ->type_name("OUT");
  verb->add_option("--gpus-per-node", arguments->gpus_per_node,
                   "Consecutive ranks on one node; else as the cluster profile says")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  verb->add_flag("--all", arguments->all, "Spell out every group and every rank");
  verb->callback([arguments, &action] {
    action = [arguments](const Output& output) { return run_topology(*arguments, output); };
  });
}

}  // namespace moetwin
