#include "core/topology/layout_plan.h"

#include <algorithm>

#include "core/base/error.h"

namespace moetwin {
namespace {

// Stretches of one column's rows that lie on one node.
std::vector<NodeBox> boxes_of_column(const Grid& grid, const LayoutPlan& plan, size_t stage,
                                     size_t column, int64_t gpus_per_node) {
  std::vector<NodeBox> boxes;
  for (size_t row = 0; row < plan.rows.shown.size(); ++row) {
    const int64_t rank = grid.rank_of_expert_grid(
        plan.stages.shown[stage], plan.columns.shown[column], plan.rows.shown[row], 0);
    const int64_t node = rank / gpus_per_node;
    const bool across_gap = plan.rows.skipped > 0 && row == plan.rows.after;
    if (boxes.empty() || boxes.back().node != node || across_gap)
      boxes.push_back({node, stage, column, column, row, row, true});
    else
      boxes.back().last_row = row;
  }
  return boxes;
}

bool joins(const NodeBox& left, const NodeBox& right) {
  return left.node == right.node && left.stage == right.stage &&
         left.last_column + 1 == right.first_column && left.first_row == right.first_row &&
         left.last_row == right.last_row;
}

}  // namespace

ShownAxis shown_axis(int64_t n, int64_t most, int64_t head, int64_t tail) {
  ShownAxis axis;
  if (n <= most) {
    for (int64_t i = 0; i < n; ++i) axis.shown.push_back(i);
    return axis;
  }
  for (int64_t i = 0; i < head; ++i) axis.shown.push_back(i);
  for (int64_t i = n - tail; i < n; ++i) axis.shown.push_back(i);
  axis.skipped = n - head - tail;
  axis.after = static_cast<size_t>(head);
  return axis;
}

LayoutPlan plan_layout(const Grid& grid, int64_t gpus_per_node) {
  require(gpus_per_node > 0, "a node without GPUs");
  LayoutPlan plan;
  plan.stages = shown_axis(grid.pp(), 4, 2, 1);
  plan.rows = grid.pp() == 1 ? shown_axis(grid.ep(), 16, 8, 2) : shown_axis(grid.ep(), 8, 5, 2);
  // Tall columns are wide too, as their edges need room. Where a node holds several columns, the
  // cut leaves whole nodes.
  const int64_t rows = static_cast<int64_t>(plan.rows.shown.size());
  const int64_t cells = rows <= 2 ? 16 : rows <= 8 ? 8 : 5;
  const int64_t most = std::max<int64_t>(2, cells / grid.etp());
  const int64_t column_ranks = grid.ep() * grid.etp();
  const int64_t in_node = std::clamp<int64_t>(gpus_per_node / column_ranks, 1, most / 2);
  const int64_t head = std::max(in_node, (most * 3 / 4 - in_node) / in_node * in_node);
  plan.columns = shown_axis(grid.edp(), most, head, in_node);

  plan.break_above.assign(plan.rows.shown.size(), false);
  if (gpus_per_node % grid.etp() != 0) return plan;
  for (size_t stage = 0; stage < plan.stages.shown.size(); ++stage)
    for (size_t column = 0; column < plan.columns.shown.size(); ++column) {
      const bool across_gap = plan.columns.skipped > 0 && column == plan.columns.after;
      for (const NodeBox& box : boxes_of_column(grid, plan, stage, column, gpus_per_node)) {
        if (box.first_row > 0) plan.break_above[box.first_row] = true;
        const auto left = std::find_if(plan.nodes.begin(), plan.nodes.end(),
                                       [&](const NodeBox& other) { return joins(other, box); });
        if (left != plan.nodes.end() && !across_gap)
          left->last_column = column;
        else
          plan.nodes.push_back(box);
      }
    }
  for (NodeBox& box : plan.nodes) {
    const auto same = std::count_if(plan.nodes.begin(), plan.nodes.end(),
                                    [&](const NodeBox& other) { return other.node == box.node; });
    const auto columns = static_cast<int64_t>(box.last_column - box.first_column + 1);
    const auto rows = static_cast<int64_t>(box.last_row - box.first_row + 1);
    const int64_t on_node = std::min(gpus_per_node, grid.world() - box.node * gpus_per_node);
    box.whole = same == 1 && columns * rows * grid.etp() == on_node;
  }
  return plan;
}

}  // namespace moetwin
