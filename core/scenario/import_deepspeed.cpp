#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "core/scenario/import_json.h"
#include "core/scenario/json_members.h"
#include "core/scenario/key_prefixes.h"

namespace moetwin {
namespace {

void take_batch(JsonMembers& in, ScenarioDraft& draft) {
  in.take("train_batch_size", kTraining + "global_batch_size");
  in.take("train_micro_batch_size_per_gpu", kTraining + "micro_batch_size");
  if (!in.take("gradient_accumulation_steps").isNull())
    draft.note(
        "gradient_accumulation_steps: global_batch_size / (micro_batch_size x data parallel "
        "ranks)");
}

void take_optimizer(JsonMembers& in, ScenarioDraft& draft) {
  const std::string kind =
      in.take("optimizer.type").isString() ? in.take("optimizer.type").asString() : std::string();
  // Where the file does not say, DeepSpeed's defaults: the betas of PyTorch, no decay.
  if (!kind.empty()) {
    draft.set(kTraining + "beta1", 0.9);
    draft.set(kTraining + "beta2", 0.999);
    draft.set(kTraining + "weight_decay", 0);
  }
  if (kind == "SGD") {
    draft.set(kTraining + "optimizer", "sgd");
  } else if (!kind.empty() && kind != "AdamW" && kind != "Adam" && kind != "FusedAdam") {
    in.leave("optimizer.type", "legal: AdamW, SGD; adamw stands");
  } else if (kind == "Adam") {
    draft.note("optimizer Adam: DeepSpeed's is AdamW unless adam_w_mode is false");
  }
  in.take("optimizer.params.lr", kTraining + "learning_rate");
  in.take("optimizer.params.eps", kTraining + "adam_epsilon");
  in.take("optimizer.params.weight_decay", kTraining + "weight_decay");
  const Json::Value& betas = in.take("optimizer.params.betas");
  if (betas.isArray() && betas.size() == 2) {
    draft.set(kTraining + "beta1", betas[0]);
    draft.set(kTraining + "beta2", betas[1]);
  }
  const Json::Value& clip = in.take("gradient_clipping");
  draft.set(kTraining + "max_grad_norm", clip.isNumeric() ? clip : Json::Value(0));
  if (!clip.isNumeric())
    draft.note("max_grad_norm 0: DeepSpeed does not clip where gradient_clipping is not given");
}

void take_schedule(JsonMembers& in, ScenarioDraft& draft) {
  const Json::Value& type = in.take("scheduler.type");
  if (!type.isString()) return;
  const std::string kind = type.asString(), schedule = kTraining + "schedule.";
  if (kind == "WarmupCosineLR") {
    draft.set(schedule + "kind", "cosine");
    in.take("scheduler.params.total_num_steps", schedule + "decay_steps");
    in.take("scheduler.params.cos_min_ratio", schedule + "min_ratio");
  } else if (kind == "WarmupLR") {
    draft.set(schedule + "kind", "warmup");
    in.take("scheduler.params.warmup_max_lr", kTraining + "learning_rate");
  } else {
    in.leave("scheduler.type", "legal: WarmupLR, WarmupCosineLR; a constant rate stands");
    return;
  }
  in.take("scheduler.params.warmup_num_steps", schedule + "warmup_steps");
}

void take_precision(JsonMembers& in, ScenarioDraft& draft) {
  const bool fp16 = in.take("fp16.enabled").isBool() && in.take("fp16.enabled").asBool();
  const bool bf16 = in.take("bf16.enabled").isBool() && in.take("bf16.enabled").asBool();
  draft.set(kTraining + "dtype", fp16 ? "fp16" : bf16 ? "bf16" : "fp32");
  if (!fp16) return;
  const std::string scaling = kTraining + "loss_scaling.";
  const Json::Value& fixed = in.take("fp16.loss_scale");
  if (fixed.isNumeric() && fixed.asDouble() > 0) {
    draft.set(scaling + "mode", "static");
    draft.set(scaling + "initial_scale", fixed);
    return;
  }
  const auto number = [&in](const char* path, double otherwise) {
    const Json::Value& value = in.take(path);
    return value.isNumeric() ? value.asDouble() : otherwise;
  };
  // Where the file does not say, DeepSpeed's defaults.
  draft.set(scaling + "initial_scale", std::exp2(number("fp16.initial_scale_power", 16)));
  draft.set(scaling + "growth_interval_steps",
            Json::Int64(std::llround(number("fp16.loss_scale_window", 1000))));
  draft.set(scaling + "hysteresis", Json::Int64(std::llround(number("fp16.hysteresis", 2))));
  draft.set(scaling + "minimum_scale", number("fp16.min_loss_scale", 1));
}

void take_offload(JsonMembers& in, ScenarioDraft& draft) {
  const auto to_cpu = [&in](const std::string& path) {
    const Json::Value& device = in.take(path + ".device");
    if (!device.isString() || device.asString() == "none") return false;
    if (device.asString() != "cpu") in.leave(path + ".device", "legal: cpu, none");
    return device.asString() == "cpu";
  };
  const std::string zero = "zero_optimization.";
  const bool parameters = to_cpu(zero + "offload_param"),
             optimizer = to_cpu(zero + "offload_optimizer");
  if (parameters) draft.set(kDistributed + "fsdp.cpu_offload", true);
  if (parameters != optimizer)
    in.leave(zero + (parameters ? "offload_param" : "offload_optimizer") + ".device",
             parameters ? "the optimizer state goes to the CPU too: fsdp.cpu_offload is one key"
                        : "legal: fsdp.cpu_offload, which offloads sharded parameters too");
}

void take_zero(JsonMembers& in, ScenarioDraft& draft) {
  in.take("zero_optimization.stage", kDistributed + "zero_stage");
  in.take("zero_optimization.overlap_comm",
          kDistributed + "comm_optimization.gradient_reduction_overlap");
  take_offload(in, draft);
  // The type of gradients on the wire.
  const Json::Value& wire = in.take("communication_data_type");
  const Json::Value& stage = in.take("zero_optimization.stage");
  if (wire.isString() && stage.isIntegral() && stage.asInt() >= 2)
    draft.set(kDistributed + "fsdp.mixed_precision.reduce_dtype", wire);
  else if (!wire.isNull())
    in.leave("communication_data_type", "legal with sharded gradients (zero_stage 2 or 3)");
  for (const char* path :
       {"zero_optimization.mics_shard_size", "zero_optimization.zero_hpz_partition_size"})
    if (!in.take(path).isNull())
      in.leave(path, "legal: fsdp.sharding_strategy HYBRID_SHARD, which shards inside a node");
  const Json::Value& bucket = in.take("zero_optimization.reduce_bucket_size");
  if (!bucket.isNumeric()) return;
  draft.set(kDistributed + "comm_optimization.gradient_bucket_bytes",
            Json::Int64(std::llround(4 * bucket.asDouble())));
  draft.note(
      "gradient_bucket_bytes = 4 x reduce_bucket_size: DeepSpeed counts elements, gradients "
      "here have 4 bytes");
}

void take_tensor_parallel(JsonMembers& in) {
  in.take("tensor_parallel.autotp_size", kDistributed + "tensor_parallel_size");
  in.take("tensor_parallel.tp_size", kDistributed + "tensor_parallel_size");
}

void take_experts(JsonMembers& in, ScenarioDraft& draft) {
  const Json::Value& enabled = in.take("expert_parallel.enabled");
  if (enabled.isBool() && !enabled.asBool()) return;
  in.take("expert_parallel.autoep_size", kDistributed + "expert_parallel_size");
  in.take("expert_parallel.expert_tensor_parallel_size",
          kDistributed + "expert_tensor_parallel_size");
  in.take("expert_parallel.top_k", kMoe + "top_k");
  in.take("expert_parallel.score_func", "routing.score_function");
  in.take("expert_parallel.route_scale", "routing.weight_scale");
  in.take("expert_parallel.num_expert_groups", "routing.groups");
  in.take("expert_parallel.num_limited_groups", "routing.kept_groups");
  const Json::Value& norm = in.take("expert_parallel.route_norm");
  if (norm.isBool()) draft.set("routing.normalize_weights", norm.asBool() ? 1 : 0);
}

}  // namespace

void import_deepspeed(const std::string& text, const std::string& name, ScenarioDraft* draft) {
  const Json::Value root = parse_object(text, name);
  JsonMembers in(root, std::filesystem::path(name).filename().string(), draft);
  take_batch(in, *draft);
  take_optimizer(in, *draft);
  take_schedule(in, *draft);
  take_precision(in, *draft);
  take_zero(in, *draft);
  take_tensor_parallel(in);
  take_experts(in, *draft);
  in.take("steps_per_print", "output.log_every");
  in.leave_rest("no counterpart");
}

}  // namespace moetwin
