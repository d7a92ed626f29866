#include "cli/layout_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ostream>

#include "cli/text_table.h"

namespace moetwin {

std::string members_text(const Group& group) {
  const int64_t n = group.size();
  if (n > 2 && group.n0 == 1 && group.stride1 == 1)
    return fmt::format("{{{}..{}}}", group.base, group.member(n - 1));
  if (n <= 8) return fmt::format("{{{}}}", fmt::join(group.members(), ","));
  return fmt::format("{{{},{},{},..,{}}}", group.member(0), group.member(1), group.member(2),
                     group.member(n - 1));
}

void print_grids(std::ostream& out, const Grid& grid, const ModelConfig& model) {
  out << fmt::format("Expert grid  W {} = EDP {} x EP {} x ETP {} x PP {}\n", grid.world(),
                     grid.edp(), grid.ep(), grid.etp(), grid.pp());
  const std::string context = grid.cp() > 1 ? fmt::format(" x CP {}", grid.cp()) : "";
  out << fmt::format("Dense grid   W {} = DDP {}{} x TP {} x PP {}\n", grid.world(),
                     grid.batch_ranks(), context, grid.tp(), grid.pp());
  const int64_t experts = model.moe_layer_config.num_experts;
  if (experts == 0) return;
  out << fmt::format("Experts      {} per MoE layer, {} on each rank, {} {} of each\n", experts,
                     grid.local_experts(), grid.edp(), grid.edp() == 1 ? "copy" : "copies");
  const int64_t split = grid.hidden_sharding() * grid.etp();
  if (grid.hidden_sharding() > 1)
    out << fmt::format("             hidden sharding {}, F {} -> {}\n", grid.hidden_sharding(),
                       model.expert_width(), model.expert_width() / grid.hidden_sharding());
  if (grid.etp() > 1)
    out << fmt::format("             expert tensor parallel {}: {} of F {} on a rank\n", grid.etp(),
                       model.expert_width() / split, model.expert_width());
}

void print_groups(std::ostream& out, const Grid& grid, size_t most_groups) {
  TextTable table({true, false, true, true, true});
  table.row({"kind", "groups", "of", "carries", "members"});
  for (GroupKind kind : all_group_kinds()) {
    if (kind == GroupKind::cp && grid.cp() == 1) continue;
    const std::vector<Group> groups = grid.groups(kind);
    std::string members;
    if (groups.size() > 1 && static_cast<int64_t>(groups.size()) == grid.world()) {
      table.row({group_kind_name(kind), fmt::format("{}", groups.size()), "1",
                 group_kind_carries(kind), "each rank alone"});
      continue;
    }
    for (size_t i = 0; i < groups.size() && i < most_groups; ++i)
      members += (i ? " " : "") + members_text(groups[i]);
    if (groups.size() > most_groups)
      members += fmt::format(" and {} more", groups.size() - most_groups);
    int64_t most = 0;
    for (const Group& group : groups) most = std::max(most, group.size());
    table.row({group_kind_name(kind), fmt::format("{}", groups.size()), fmt::format("{}", most),
               group_kind_carries(kind), members});
  }
  table.print(out);
}

}  // namespace moetwin
