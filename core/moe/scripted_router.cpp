#include "core/moe/scripted_router.h"

#include "core/moe/balance.h"
#include "core/moe/workload.h"
#include "core/ops/router.h"

namespace moetwin {

Script::Script(const RouterSetup& setup, const std::string& source)
    : routing_(setup.routing),
      trace_(setup.trace),
      layer_(setup.layer),
      source_rank_(setup.source_rank),
      source_ranks_(setup.source_ranks),
      experts_(setup.model.moe_layer_config.num_experts),
      columns_(setup.expert_columns),
      top_k_(setup.model.moe_layer_config.top_k) {
  routing_.source = source;
}

Tensor Script::wanted(Context& context, const MicroBatch& batch) const {
  Tensor counts =
      context.memory.allocate({experts_}, DType::i64, MemoryClass::control, "scripted counts");
  const std::vector<int64_t> values =
      scripted_counts(routing_, context.seed, batch.step, layer_, source_rank_, source_ranks_,
                      batch.tokens(), top_k_, experts_, columns_, trace_.get());
  context.device.write(counts, values.data(), context.streams.compute);
  return counts;
}

ScriptedRouter::ScriptedRouter(const RouterSetup& setup, Script script)
    : script_(std::move(script)),
      experts_(setup.model.moe_layer_config.num_experts),
      top_k_(setup.model.moe_layer_config.top_k),
      moe_layer_(setup.moe_layer),
      balance_(setup.balance) {}

Routing ScriptedRouter::forward(Context& context, const MicroBatch& batch, const Tensor&,
                                const Tensor& counts) {
  const int64_t tokens = batch.tokens();
  const auto make = [&](const Shape& shape, DType dtype, const char* name) {
    return context.memory.allocate(shape, dtype, MemoryClass::router, name);
  };
  Routing r;
  r.counts = counts;
  r.probs = make({tokens, experts_}, context.real(), "router scores");
  r.weights = make({tokens, top_k_}, context.real(), "router weights");
  r.ids = make({tokens, top_k_}, DType::i32, "expert ids");
  ScriptedAttr attr;
  attr.top_k = top_k_;
  context.launch(
      router_scripted(script_.wanted(context, batch), r.probs, r.weights, r.ids, counts, attr));
  balance_.record(context, moe_layer_, batch, counts);
  return r;
}

}  // namespace moetwin
