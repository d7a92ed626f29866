#pragma once
// What estimates are told in.

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/device/op.h"
#include "core/device/tensor.h"

namespace moetwin {

/// Reference arithmetic of an op (core/ops/isa.h).
using References = std::function<Reference(const Op&)>;

/// Bytes by memory class.
using ClassBytes = std::array<int64_t, kMemoryClasses>;
int64_t total(const ClassBytes& bytes);

/// Bytes by kind and purpose that a rank sends, mean over the group's members.
struct Sent {
  const char* kind = "";
  const char* purpose = "";
  std::string group;
  double bytes = 0, off_node = 0, calls = 0;
};
void add_sent(std::vector<Sent>& to, const Sent& sent, double times = 1);

}  // namespace moetwin
