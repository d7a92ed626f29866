#include "core/ops/isa.h"

#include <fmt/format.h>

#include "core/base/error.h"

extern "C" {
const moetwin::Reference* moetwin_reference_x86_64();
const moetwin::Reference* moetwin_reference_x86_64_v3();
const moetwin::Reference* moetwin_reference_x86_64_v4();
}

namespace moetwin {

const char* isa_name(Isa isa) {
  constexpr const char* kNames[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
  return kNames[static_cast<int>(isa)];
}

bool isa_supported(Isa isa) {
  __builtin_cpu_init();
  switch (isa) {
    case Isa::x86_64:
      return true;
    case Isa::x86_64_v3:
      return __builtin_cpu_supports("x86-64-v3");
    case Isa::x86_64_v4:
      return __builtin_cpu_supports("x86-64-v4");
  }
  return false;
}

Isa best_isa() {
  for (Isa isa : {Isa::x86_64_v4, Isa::x86_64_v3})
    if (isa_supported(isa)) return isa;
  return Isa::x86_64;
}

Isa parse_isa(const std::string& name) {
  if (name == "auto") return best_isa();
  for (Isa isa : {Isa::x86_64, Isa::x86_64_v3, Isa::x86_64_v4}) {
    if (name != isa_name(isa)) continue;
    if (isa_supported(isa)) return isa;
    throw Error(ErrorClass::configuration,
                fmt::format("instruction set \"{}\": this processor has {} at most", name,
                            isa_name(best_isa())));
  }
  throw Error(
      ErrorClass::configuration,
      fmt::format("instruction set \"{}\" is not known; legal: auto, x86-64, x86-64-v3, x86-64-v4",
                  name));
}

Reference reference_of(const Op& op, Isa isa) {
  const Reference* table = isa == Isa::x86_64_v4   ? moetwin_reference_x86_64_v4()
                           : isa == Isa::x86_64_v3 ? moetwin_reference_x86_64_v3()
                                                   : moetwin_reference_x86_64();
  return table[op.index];
}

}  // namespace moetwin
