#include "core/parallel/stage_exchange.h"

#include "core/base/error.h"

namespace moetwin {

namespace {
/// Results that may be on their way before compute waits for the oldest.
constexpr size_t kSentAtOnce = 2;
constexpr const char* kPurpose[] = {"stage activations", "stage gradients"};
}  // namespace

StageExchange::StageExchange(Context& context, const StageLinks& links, const PipelineShape& shape,
                             int64_t hidden)
    : context_(context), shape_(shape), hidden_(hidden) {
  if (shape.stages == 1) return;
  channels_[activations].in = links.forward_in.get();
  channels_[activations].out = links.forward_out.get();
  channels_[gradients].in = links.backward_in.get();
  channels_[gradients].out = links.backward_out.get();
  channels_[activations].receives = context.device.stream("activations in");
  channels_[activations].sends = context.device.stream("activations out");
  channels_[gradients].receives = context.device.stream("gradients in");
  channels_[gradients].sends = context.device.stream("gradients out");
}

StageExchange::Way StageExchange::way_of(const PipelineAction& action) {
  return action.work == PipelineWork::forward ? activations : gradients;
}

bool StageExchange::needs(const PipelineAction& action) const {
  if (action.work == PipelineWork::backward_weight) return false;
  if (action.work == PipelineWork::forward) return stage_of(action) > 0;
  return stage_of(action) + 1 < shape_.stages * shape_.chunks;
}

bool StageExchange::gives(const PipelineAction& action) const {
  if (action.work == PipelineWork::backward_weight) return false;
  if (action.work == PipelineWork::forward)
    return stage_of(action) + 1 < shape_.stages * shape_.chunks;
  return stage_of(action) > 0;
}

void StageExchange::expect(const PipelineAction& action, int64_t tokens) {
  if (!needs(action)) return;
  const Way way = way_of(action);
  Channel& channel = channels_[way];
  if (channel.arriving.count(key(action))) return;
  const Tensor tensor = context_.activation({tokens, hidden_}, kPurpose[way]);
  // Whatever used this memory before was launched before the event.
  context_.order(context_.streams.compute, channel.receives);
  channel.in->recv(tensor, 1 - channel.in->rank(), channel.receives, kPurpose[way]);
  channel.arriving[key(action)] = {tensor, context_.device.record(channel.receives)};
}

Tensor StageExchange::take(const PipelineAction& action) {
  if (!needs(action)) return {};
  Channel& channel = channels_[way_of(action)];
  const auto found = channel.arriving.find(key(action));
  require(found != channel.arriving.end(), "a receive is posted before its result is taken");
  const auto [tensor, event] = std::move(found->second);
  channel.arriving.erase(found);
  context_.device.wait(context_.streams.compute, event);
  return tensor;
}

void StageExchange::send(const PipelineAction& action, const Tensor& result) {
  if (!gives(action)) return;
  const Way way = way_of(action);
  Channel& channel = channels_[way];
  if (channel.sent.size() == kSentAtOnce) {
    context_.device.wait(context_.streams.compute, channel.sent.front().second);
    channel.sent.pop_front();
  }
  context_.order(context_.streams.compute, channel.sends);
  channel.out->send(result, 1 - channel.out->rank(), channel.sends, kPurpose[way]);
  channel.sent.emplace_back(result, context_.device.record(channel.sends));
}

void StageExchange::finish() {
  for (Channel& channel : channels_) {
    for (const auto& [tensor, event] : channel.sent)
      context_.device.wait(context_.streams.compute, event);
    channel.sent.clear();
  }
}

}  // namespace moetwin
