#include "core/ops/reference/table.h"

// The one name each library shows; everything else stays inside, so that inline code of one
// instruction set never serves another.
extern "C" __attribute__((visibility("default"))) const moetwin::Reference* MOETWIN_ENTRY() {
#define MOETWIN_ADDRESS(name) &moetwin::reference::name,
  static constexpr moetwin::Reference kTable[] = {MOETWIN_OPS(MOETWIN_ADDRESS)};
#undef MOETWIN_ADDRESS
  return kTable;
}
