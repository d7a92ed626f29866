#pragma once
// Groups and sizes in words, for `check` and `topology`.

#include <iosfwd>
#include <string>

#include "core/scenario/scenario.h"
#include "core/topology/grid.h"

namespace moetwin {

/// "{0,2,4,6}", "{0..15}", "{0,2,4,..,62}".
std::string members_text(const Group& group);

/// Both grids as products, and how the experts lie.
void print_grids(std::ostream& out, const Grid& grid, const ModelConfig& model);

/// One line per kind of group: name, size, count, what it carries, members; at most
/// `most_groups` groups are spelled out.
void print_groups(std::ostream& out, const Grid& grid, size_t most_groups);

}  // namespace moetwin
