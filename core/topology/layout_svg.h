#pragma once
// The picture of a layout, as seed 001 draws it: columns are EP groups joined by solid blue
// all-to-all edges, DP replicas across columns are joined by dashed orange edges, nodes are boxes.

#include <string>

#include "core/scenario/scenario.h"
#include "core/topology/grid.h"

namespace moetwin {

/// An SVG document. `gpus_per_node` consecutive ranks share a node.
std::string layout_svg(const Grid& grid, const ModelConfig& model, const std::string& name,
                       int64_t gpus_per_node);

/// "experts 0–31", "expert 5", "" without experts: those that an EP rank owns.
std::string experts_label(const Grid& grid, int64_t ep_rank);
/// "F 64–127": the part of each expert's width that an EP rank owns; "" where it owns all of it.
std::string width_label(const Grid& grid, const ModelConfig& model, int64_t ep_rank);

}  // namespace moetwin
