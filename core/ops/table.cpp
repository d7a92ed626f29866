#include "core/ops/table.h"

namespace moetwin {

std::span<const Op* const> all_ops() {
#define MOETWIN_OP_ADDRESS(name) &op_##name,
  static constexpr const Op* kOps[] = {MOETWIN_OPS(MOETWIN_OP_ADDRESS)};
#undef MOETWIN_OP_ADDRESS
  return kOps;
}

const Op* find_op(std::string_view name) {
  for (const Op* op : all_ops())
    if (name == op->name) return op;
  return nullptr;
}

}  // namespace moetwin
