#pragma once
// The one table of ops. Each row (`op_gemm`, ...) is defined in its op's own file.

#include <span>
#include <string_view>

#include "core/device/op.h"
#include "core/ops/list.h"

namespace moetwin {

#define MOETWIN_OP_ROW(name) extern const Op op_##name;
MOETWIN_OPS(MOETWIN_OP_ROW)
#undef MOETWIN_OP_ROW

/// Every op, at the position its `index` says.
std::span<const Op* const> all_ops();
/// Null when there is none of that name.
const Op* find_op(std::string_view name);

}  // namespace moetwin
