#pragma once
// Activations and their gradients on their way between pipeline stages.
//
// Each of the four ways (activations in and out, gradients in and out) is a communicator of two
// ranks with a stream of its own, so no transfer waits behind another way's. Receives are posted
// one action early and run beside compute; what was sent is kept until the send after the next on
// the same way, when compute waits for it. tests/core/parallel/test_schedules.cpp shows that no
// schedule can get stuck by that.

#include <array>
#include <deque>
#include <map>

#include "core/nn/context.h"
#include "core/parallel/communicators.h"
#include "core/parallel/pipeline_schedule.h"

namespace moetwin {

class StageExchange {
 public:
  /// `hidden`: width of what is exchanged. With one stage nothing is.
  StageExchange(Context& context, const StageLinks& links, const PipelineShape& shape,
                int64_t hidden);

  /// Posts the receive of what the action needs from another stage, [tokens, hidden]; once.
  void expect(const PipelineAction& action, int64_t tokens);
  /// What was expected: an activation, or the gradient of one; undefined where the action needs
  /// nothing. Compute waits for it.
  Tensor take(const PipelineAction& action);
  /// Hands the result of the action to the stage that needs it, after the compute launched so far.
  void send(const PipelineAction& action, const Tensor& result);
  /// Compute waits for all that was sent.
  void finish();

 private:
  enum Way { activations, gradients };
  struct Channel {
    Communicator* in = nullptr;
    Communicator* out = nullptr;
    Stream receives, sends;
    std::map<int64_t, std::pair<Tensor, Event>> arriving;  ///< by micro-batch and chunk
    std::deque<std::pair<Tensor, Event>> sent;
  };
  static Way way_of(const PipelineAction& action);
  /// The virtual stage an action runs on, in the order data flows.
  int64_t stage_of(const PipelineAction& action) const {
    return action.chunk * shape_.stages + shape_.stage;
  }
  int64_t key(const PipelineAction& a) const { return a.micro_batch * shape_.chunks + a.chunk; }
  bool needs(const PipelineAction& action) const;
  bool gives(const PipelineAction& action) const;

  Context& context_;
  PipelineShape shape_;
  int64_t hidden_;
  std::array<Channel, 2> channels_;
};

}  // namespace moetwin
