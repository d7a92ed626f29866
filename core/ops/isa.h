#pragma once
// Which compilation of the reference arithmetic runs.

#include <cstdint>
#include <string>

#include "core/device/op.h"

namespace moetwin {

enum class Isa : uint8_t { x86_64, x86_64_v3, x86_64_v4 };
const char* isa_name(Isa isa);
/// "x86-64" | "x86-64-v3" | "x86-64-v4"; "auto" is the best this processor has. Throws
/// Error(configuration) for others and for what this processor cannot run.
Isa parse_isa(const std::string& name);
/// Whether this processor runs it.
bool isa_supported(Isa isa);
Isa best_isa();

/// The op's arithmetic. Results of one instruction set never depend on addresses, threads or time.
Reference reference_of(const Op& op, Isa isa);

}  // namespace moetwin
