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

/// Collectives of a kind, purpose, group and algorithm: what a rank sends, mean over the members.
struct Sent {
  const char* kind = "";
  const char* purpose = "";
  const char* way = "";  ///< Plan::way
  std::string group;
  int64_t members = 0;
  double bytes = 0, off_node = 0, calls = 0, seconds = 0;
};
void add_sent(std::vector<Sent>& to, const Sent& sent, double times = 1);

}  // namespace moetwin
