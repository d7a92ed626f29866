#pragma once
// Where each rank stands in the picture of a layout: columns are EP groups, rows EP ranks, stages
// bands. Large layouts leave out the middle of columns, rows and stages.

#include <cstdint>
#include <vector>

#include "core/topology/grid.h"

namespace moetwin {

/// The coordinates along one axis that are drawn, in order; `skipped` sit before `after` (an index
/// into `shown`), 0 where all are drawn.
struct ShownAxis {
  std::vector<int64_t> shown;
  int64_t skipped = 0;
  size_t after = 0;
};

/// Shows `n` coordinates whole, or `head` first and `tail` last ones.
ShownAxis shown_axis(int64_t n, int64_t most, int64_t head, int64_t tail);

/// One rectangle of a node: rows [first_row, last_row] of columns [first_column, last_column], as
/// indices into the shown axes.
struct NodeBox {
  int64_t node = 0;
  size_t stage = 0, first_column = 0, last_column = 0, first_row = 0, last_row = 0;
  bool whole = true;  ///< false: the node has more rectangles, or parts that are not drawn
};

struct LayoutPlan {
  ShownAxis stages, columns, rows;  ///< pp, edp, ep
  std::vector<NodeBox> nodes;       ///< empty where a node cuts an expert-TP group
  std::vector<bool> break_above;    ///< per shown row: a node ends above it in some column
};

/// `gpus_per_node` consecutive ranks share a node.
LayoutPlan plan_layout(const Grid& grid, int64_t gpus_per_node);

}  // namespace moetwin
