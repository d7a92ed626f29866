#pragma once
// What a layer needs of its rank: the device, memory, streams, and which part of which batch is
// being worked on.

#include <cstdint>
#include <vector>

#include "core/base/philox.h"
#include "core/base/turns.h"
#include "core/device/allocator.h"
#include "core/device/backend.h"
#include "core/nn/unit_hooks.h"

namespace moetwin {

struct Streams {
  Stream compute;    ///< all arithmetic
  Stream dispatch;   ///< token exchange of the MoE layers
  Stream reduction;  ///< gradient reduction
};

struct Context {
  Backend& device;
  Allocator& memory;
  Streams streams;
  DType dtype = DType::f32;  ///< of activations and parameters
  uint64_t seed = 1;
  Phase phase = Phase::other;
  int64_t host_syncs = 0;      ///< reads so far
  UnitHooks* units = nullptr;  ///< null where every rank keeps its parameters whole
  /// Where a backward that leaves the gradients of parameters for later (zero bubble) puts their
  /// launches; null: they are launched at once.
  std::vector<OpCall>* later = nullptr;
  /// Where two micro-batches take turns (micro_batch_overlap), each with a context of its own;
  /// null: one is worked on at a time.
  Turns* turns = nullptr;

  DType real() const { return real_dtype(dtype); }
  void launch(const OpCall& call) { device.launch(call, streams.compute); }
  /// Launches, and returns the memory that the kernels it is priced as keep for the backward beside
  /// the call's operands (Op::saved); undefined where they keep nothing.
  Tensor launch_keeping(const OpCall& call);
  /// For what adds to gradients of parameters alone; its operands must not be changed afterwards.
  void launch_parameter_gradient(const OpCall& call) {
    if (later)
      later->push_back(call);
    else
      launch(call);
  }
  Tensor activation(const Shape& shape, const char* name) {
    return memory.allocate(shape, dtype, MemoryClass::activations, name);
  }
  /// `later` does not start what follows before `earlier` has done what it has now.
  void order(Stream earlier, Stream later) { device.wait(later, device.record(earlier)); }
  // Parts of a model say what they are about to use (UnitHooks).
  void before_forward(int64_t block) {
    if (units) units->before_forward(*this, block);
  }
  void before_experts(int64_t block) {
    if (units) units->before_experts(*this, block);
  }
  void after_forward(int64_t block, bool backward) {
    if (units) units->after_forward(*this, block, backward);
  }
  void before_backward(int64_t block, bool values = true) {
    if (units) units->before_backward(*this, block, values);
  }
  void after_backward_input(int64_t block) {
    if (units) units->after_backward_input(*this, block);
  }
  void after_backward(int64_t block) {
    if (units) units->after_backward(*this, block);
  }
  /// Called between the start of an exchange and the wait for what arrives: another micro-batch may
  /// use the compute stream meanwhile.
  void exchange_under_way();
  /// The one way to the host: waits for the stream, and is counted. With numerics off a tensor
  /// without storage may only be read to null, which takes the time of the copy.
  void to_host(const Tensor& tensor, void* host, Stream stream);
};

/// Tensors of the MoE layers, and of the head, that somebody wants to look at later; while they are
/// here their memory is not used again. T tokens, k choices, E experts.
struct RoutingWatch {
  struct Routed {
    int64_t layer;  ///< of the model
    Tensor ids;     ///< i32 [T,k], the first choice first
    Tensor scores;  ///< real [T,E]
    Tensor logits;  ///< real [T,E], before noise
  };
  struct Weighed {
    int64_t layer;
    Tensor gradient;  ///< real [T,k]: of the loss by the weights
  };
  std::vector<Routed> routed;    ///< forwards without backward
  std::vector<Weighed> weighed;  ///< backwards
  bool keep_logits = false;      ///< of the head, too
  std::vector<Tensor> logits;    ///< [T, classes of this rank]: forwards without backward
};

/// A micro-batch of whole sequences: sequences [first_sequence, first_sequence + sequences) of the
/// global batch of `step`.
struct MicroBatch {
  int64_t step = 1;   ///< 1-based
  int64_t index = 0;  ///< among the micro-batches of this rank's step
  int64_t first_sequence = 0;
  int64_t sequences = 1;
  int64_t sequence_length = 0;
  int64_t valid_tokens = 0;   ///< targets that count
  double share = 1;           ///< valid tokens / nominal tokens of the global batch
  double gradient_scale = 1;  ///< 1 / nominal tokens of the global batch
  double loss_scale = 1;      ///< what every loss is multiplied by for its backward
  bool training = true;       ///< noise, jitter, dropout, records
  bool backward = true;       ///< keep what the backward needs
  RoutingWatch* watch = nullptr;

  int64_t tokens() const { return sequences * sequence_length; }
  int64_t first_token() const { return first_sequence * sequence_length; }
};

}  // namespace moetwin
