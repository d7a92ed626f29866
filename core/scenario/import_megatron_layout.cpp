#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/scenario/key_prefixes.h"
#include "core/scenario/megatron_arguments.h"

namespace moetwin {
namespace {

class Layout {
 public:
  Layout(MegatronArguments& in, ScenarioDraft& draft) : in_(in), draft_(draft) {}

  void sizes(int64_t spread_experts);
  void context(int64_t cp);
  void stages();
  void sharding();
  void overlap();

 private:
  void put(const char* key, int64_t value) {
    draft_.set(kDistributed + key, Json::Value(Json::Int64(value)));
  }
  int64_t size(const char* name) { return in_.integer(name).value_or(1); }

  MegatronArguments& in_;
  ScenarioDraft& draft_;
  int64_t pp_ = 1;
};

void Layout::sizes(int64_t spread_experts) {
  const int64_t tp = size("tensor-model-parallel-size"), cp = size("context-parallel-size");
  pp_ = size("pipeline-model-parallel-size");
  int64_t ep = size("expert-model-parallel-size");
  const int64_t etp = in_.integer("expert-tensor-parallel-size").value_or(tp);
  int64_t per_node = 0, nodes = 1, world = 0;
  for (const char* name : {"nproc_per_node", "nproc-per-node"})
    if (const auto n = in_.integer(name)) per_node = *n;
  if (const auto n = in_.integer("nnodes")) nodes = *n;
  if (const auto n = in_.integer("world-size")) world = *n;
  if (world == 0) world = per_node * nodes;
  if (world == 0) {
    world = std::max(tp * cp, etp * ep) * pp_;
    draft_.note(
        fmt::format("world_size {}: the fewest ranks that the sizes allow, since no launcher "
                    "names how many there are",
                    world));
  }
  if (spread_experts > 0) ep = std::min(spread_experts, world / (tp * pp_ * cp));
  put("world_size", world);
  put("data_parallel_size", std::max<int64_t>(1, world / (ep * etp * pp_)));
  put("expert_parallel_size", ep);
  put("tensor_parallel_size", tp);
  put("pipeline_parallel_size", pp_);
  if (cp > 1) context(cp);
  if (etp != tp) {
    put("expert_tensor_parallel_size", etp);
    draft_.set(kDistributed + "parallel_folding", true);
    put("dense_data_parallel_size", std::max<int64_t>(1, world / (tp * pp_ * cp)));
  }
  // Megatron turns it off without TP.
  if (in_.flag("sequence-parallel") && tp > 1) draft_.set(kDistributed + "sequence_parallel", true);
}

void Layout::context(int64_t cp) {
  put("context_parallel_size", cp);
  draft_.set("training_config.numerics", "none");
  draft_.note("numerics none: context parallelism is modelled, its attention is not computed");
  const auto type = in_.text("cp-comm-type");
  if (!type) return;
  if (*type == "p2p" || *type == "all_gather" || *type == "a2a")
    draft_.set(kDistributed + "context_parallel_exchange", *type);
  else
    in_.leave("cp-comm-type", "legal: p2p, all_gather, a2a, one for all layers");
}

void Layout::stages() {
  if (const auto n = in_.integer("decoder-first-pipeline-num-layers"))
    put("num_layers_in_first_pipeline_stage", *n);
  if (const auto n = in_.integer("decoder-last-pipeline-num-layers"))
    put("num_layers_in_last_pipeline_stage", *n);
  if (in_.find("pipeline-model-parallel-layout"))
    in_.leave("pipeline-model-parallel-layout", "legal: layers_per_stage, a number for each stage");
  int64_t chunks = in_.integer("num-virtual-stages-per-pipeline-rank").value_or(1);
  const int64_t layers = in_.integer("num-layers").value_or(0);
  const auto of_chunk = in_.integer("num-layers-per-virtual-pipeline-stage");
  if (of_chunk && *of_chunk > 0) {
    chunks = std::max<int64_t>(1, layers / (pp_ * *of_chunk));
    draft_.note(fmt::format(
        "virtual_pipeline_size {}: {} layers / (pipeline_parallel_size {} x {} layers each)",
        chunks, layers, pp_, *of_chunk));
  }
  if (const auto group = in_.integer("microbatch-group-size-per-virtual-pipeline-stage");
      group && *group != pp_)
    in_.leave("microbatch-group-size-per-virtual-pipeline-stage",
              "micro-batches pass in groups of pipeline_parallel_size");
  if (pp_ == 1 || chunks == 1) return;
  put("virtual_pipeline_size", chunks);
  draft_.set(kDistributed + "pipeline_schedule", "interleaved_1f1b");
}

void Layout::sharding() {
  int64_t stage = in_.flag("use-distributed-optimizer") ? 1 : 0;
  const std::map<std::string, int64_t> stages{
      {"no_shard", 0}, {"optim", 1}, {"optim_grads", 2}, {"optim_grads_params", 3}};
  const bool fsdp = in_.flag("use-megatron-fsdp") | in_.flag("use-custom-fsdp");
  if (const auto strategy = in_.text("data-parallel-sharding-strategy"); fsdp && strategy) {
    const auto found = stages.find(*strategy);
    if (found == stages.end())
      in_.leave("data-parallel-sharding-strategy",
                "legal: no_shard, optim, optim_grads, optim_grads_params");
    else
      stage = found->second;
  }
  if (in_.flag("use-torch-fsdp2")) stage = in_.flag("torch-fsdp2-no-reshard-after-forward") ? 2 : 3;
  if (stage > 0) put("zero_stage", stage);
  if (in_.find("num-distributed-optimizer-instances"))
    in_.leave("num-distributed-optimizer-instances",
              "legal: fsdp.sharding_strategy HYBRID_SHARD, which shards inside a node");
  if (in_.find("grad-reduce-in-bf16")) {
    if (stage >= 2 && in_.flag("grad-reduce-in-bf16"))
      draft_.set(kDistributed + "fsdp.mixed_precision.reduce_dtype", "bf16");
    else
      in_.leave("grad-reduce-in-bf16", "legal with sharded gradients (zero_stage 2 or 3)");
  }
}

void Layout::overlap() {
  const std::string comm = kDistributed + "comm_optimization.";
  draft_.set(comm + "gradient_reduction_overlap", in_.flag("overlap-grad-reduce"));
  if (const auto bucket = in_.integer("ddp-bucket-size"); bucket && *bucket > 0) {
    draft_.set(comm + "gradient_bucket_bytes", Json::Value(Json::Int64(4 * *bucket)));
    draft_.note(
        "gradient_bucket_bytes = 4 x --ddp-bucket-size: Megatron counts elements, gradients here "
        "have 4 bytes");
  }
  if (in_.find("overlap-param-gather"))
    in_.leave("overlap-param-gather",
              "with sharded parameters the next layer is always gathered ahead (fsdp."
              "forward_prefetch); parameters of zero_stage 1 are gathered after the step");
  if (in_.flag("overlap-moe-expert-parallel-comm")) draft_.set(comm + "micro_batch_overlap", true);
  if (const auto minutes = in_.number("distributed-timeout-minutes"))
    draft_.set(kDistributed + "timeout_seconds", Json::Value(60 * *minutes));
}

}  // namespace

void import_megatron_layout(MegatronArguments& in, int64_t spread_experts, ScenarioDraft* draft) {
  Layout layout(in, *draft);
  layout.sizes(spread_experts);
  layout.stages();
  layout.sharding();
  layout.overlap();
}

}  // namespace moetwin
