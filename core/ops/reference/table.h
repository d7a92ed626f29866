#pragma once
// Reference arithmetic of every op, compiled once per instruction set.

#include "core/device/op.h"
#include "core/ops/list.h"

namespace moetwin::reference {

#define MOETWIN_REFERENCE(name) void name(const ReferenceCall& call);
MOETWIN_OPS(MOETWIN_REFERENCE)
#undef MOETWIN_REFERENCE

}  // namespace moetwin::reference
