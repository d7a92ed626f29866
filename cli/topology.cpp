// `moetwin topology FILE`: who is where, and in which groups.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "cli/layout_text.h"
#include "cli/scenario_arguments.h"
#include "cli/text_table.h"
#include "cli/verbs.h"
#include "core/topology/grid.h"

namespace moetwin {
namespace {

struct TopologyArguments {
  ScenarioArguments scenario;
  bool all = false;
};

std::string experts_text(const Grid& grid, const ModelConfig& model, int64_t ep) {
  const int64_t n = grid.local_experts();
  if (n == 0) return "none";
  const int64_t first = grid.first_expert(ep);
  std::string text = n == 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, first + n - 1);
  if (grid.hidden_sharding() > 1) {
    const int64_t width = model.expert_width() / grid.hidden_sharding();
    const int64_t begin = grid.hidden_row(ep) * width;
    text += fmt::format(", F {}-{}", begin, begin + width - 1);
  }
  return text;
}

void print_ranks(std::ostream& out, const Grid& grid, const ModelConfig& model, bool all) {
  constexpr int64_t kMost = 64;
  TextTable table({false, false, false, false, false, false, false, true});
  table.row({"rank", "pp", "ddp", "tp", "edp", "ep", "etp", "experts of each MoE layer"});
  const int64_t shown = all ? grid.world() : std::min(grid.world(), kMost);
  for (int64_t rank = 0; rank < shown; ++rank) {
    const Coordinates at = grid.coordinates(rank);
    const auto text = [](int64_t x) { return fmt::format("{}", x); };
    table.row({text(rank), text(at.pp), text(at.ddp), text(at.tp), text(at.edp), text(at.ep),
               text(at.etp), experts_text(grid, model, at.ep)});
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
  print_grids(output.out, grid, m);
  output.out << "\nGroups\n";
  print_groups(output.out, grid, arguments.all ? static_cast<size_t>(grid.world()) : 16);
  output.out << "\nRanks\n";
  print_ranks(output.out, grid, m, arguments.all);
  return 0;
}

}  // namespace

void add_topology(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("topology", "Print the process grids, groups and ranks of a scenario");
  verb->footer(
      "Examples:\n"
      "  moetwin topology scenarios/quickstart.json\n"
      "  moetwin topology scenarios/seed-high-ep.json --svg layout.svg");
  auto arguments = std::make_shared<TopologyArguments>();
  add_scenario_arguments(*verb, arguments->scenario);
  verb->add_flag("--all", arguments->all, "Spell out every group and every rank");
  verb->callback([arguments, &action] {
    action = [arguments](const Output& output) { return run_topology(*arguments, output); };
  });
}

}  // namespace moetwin
