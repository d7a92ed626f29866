#pragma once
// A row of memory.csv: which bytes it means.

#include <string>

#include "analysis/validate/published.h"

namespace moetwin {

enum class MemoryShare {
  peak,         ///< of tensors: PyTorch's max_memory_allocated
  reserved,     ///< of the caching allocator's blocks: max_memory_reserved
  device,       ///< of all, with context and communicators: nvidia-smi
  states,       ///< parameters, gradients and optimizer that stay; of the first stage, as the rest
  optimizer,    ///< of these, the optimizer's
  kept,         ///< most activations that wait for their backward
  working,      ///< peak less the states
  relative,     ///< kept, over what tensor parallelism alone keeps
  saved_by_op,  ///< what one op's forward leaves for the backward
};

struct MemoryRow {
  std::string reason;  ///< why it cannot be expressed; empty: it can
  MemoryShare share = MemoryShare::peak;
  double measured = 0;  ///< bytes; relative: a fraction
  std::string unit;     ///< "bytes" or "x"
  double saved = 0;     ///< saved_by_op: bytes by the op's shapes
  /// The row with what its publication states elsewhere.
  PublishedRow training;
};

/// Throws UnreadableField.
MemoryRow read_memory_row(const PublishedRow& row);

}  // namespace moetwin
