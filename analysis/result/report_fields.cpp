#include "analysis/result/report_fields.h"

namespace moetwin {

namespace {

using Fields = std::vector<ReportField>;

constexpr FieldType kText = FieldType::text, kInteger = FieldType::integer,
                    kNumber = FieldType::number, kObject = FieldType::object;

ReportField always(const char* path, FieldType type, const char* unit, const char* meaning) {
  return {path, type, false, false, unit, meaning};
}
ReportField known(const char* path, FieldType type, const char* unit, const char* meaning) {
  return {path, type, true, false, unit, meaning};
}
ReportField sometimes(const char* path, FieldType type, const char* unit, const char* meaning) {
  return {path, type, false, true, unit, meaning};
}

Fields run_fields() {
  return {
      always("schema", kText, "", "`moetwin-report/1`; fields may be added, none changes meaning"),
      always("scenario", kText, "", "name of the scenario"),
      always("backend", kText, "", "`sim`: modelled, `cuda`: real GPUs"),
      always("fidelity", kText, "", "of the modelled network: fluid, flow, representative"),
      always("cluster", kText, "", "the machine in words"),
      always("device", kText, "", "the GPU"),
      always("seed", kInteger, "", "of every random draw"),
      always("world_size", kInteger, "", "ranks"),
      always("gpus_per_node", kInteger, "", "ranks with neighbouring numbers share a node"),
      always("steps_asked", kInteger, "", "`training_config.steps`"),
      always("steps_done", kInteger, "", "the last step that all ranks completed"),
      always("wall_seconds", kNumber, "s", "of the computer that ran it"),
      known("error", kText, "", "what ended the run early"),
      known("loss.first", kNumber, "nats a token", "of the first step"),
      known("loss.last", kNumber, "nats a token", "of the last step"),
      known("loss.validation_last", kNumber, "nats a token", "the last validation"),
      always("loss.series_file", kText, "", "where each step's is: steps.csv"),
      always("loss.validation[].step", kInteger, "", "a validation came after this step"),
      known("loss.validation[].loss", kNumber, "nats a token", "what it found"),
      always("notes[]", kText, "", "substitutions and warnings"),
      always("environment", kObject, "",
             "where it ran: program, processor, GPUs with clocks and temperatures, NCCL"),
      always("settings", kObject, "", "the scenario as it was used, every key"),
  };
}

Fields time_fields() {
  return {
      known("throughput.tokens_per_second", kNumber, "tokens/s",
            "tokens of the steps after warm-up over their time"),
      known("throughput.samples_per_second", kNumber, "sequences/s", "sequences likewise"),
      known("throughput.step_seconds_median", kNumber, "s", "of the steps after warm-up"),
      known("throughput.step_seconds_p5", kNumber, "s", "5th percentile, by nearest rank"),
      known("throughput.step_seconds_p95", kNumber, "s", "95th percentile, by nearest rank"),
      known("throughput.mfu", kNumber, "1",
            "FLOP of the model / (time x GPUs x peak); a multiply-add is 2"),
      known("throughput.hfu", kNumber, "1", "the same with FLOP of recompute"),
      always("throughput.peak_flop_per_second", kNumber, "FLOP/s",
             "dense peak of the compute type, of one GPU"),
      always("throughput.peak_source", kText, "", "where that figure is from"),
      always("throughput.steps_measured", kInteger, "", "steps behind these figures"),
      always("throughput.warmup_steps_excluded", kInteger, "", "steps before them"),
      always("throughput.device_seconds", kNumber, "s", "all steps, on the machine's clock"),
      always("median_step", kInteger, "", "the step whose parts follow"),
      always("step_parts_seconds.*", kNumber, "s",
             "where that step went, mean over ranks: compute, all_to_all, other_communication, "
             "offload, "
             "bubble, host, data, idle; they sum to the step"),
      always("compute_parts_seconds.*", kNumber, "s",
             "of compute: forward, backward, recompute, optimizer, other"),
      always("hidden_seconds.*", kNumber, "s",
             "communication that ran under compute: all_to_all, other_communication"),
      known("step_parts_seconds_per_rank.*[]", kNumber, "s",
            "the parts by rank, to find stragglers"),
      sometimes("profile.steps[]", kInteger, "", "the steps that a profile recorded"),
      sometimes("profile.ranks", kInteger, "", "ranks behind it"),
      sometimes("profile.device_seconds", kNumber, "s", "device time of all its ops"),
      sometimes("profile.file", kText, "", "the whole table: profile.csv"),
      sometimes("profile.ops[].op", kText, "",
                "name of an op or collective; most device time first"),
      sometimes("profile.ops[].activity", kText, "",
                "compute, all_to_all, other_communication, ..."),
      sometimes("profile.ops[].calls", kInteger, "", "launches, of all ranks and steps"),
      sometimes("profile.ops[].total_seconds", kNumber, "s", "their device time"),
      sometimes("profile.ops[].mean_seconds", kNumber, "s", "of a call"),
      sometimes("profile.ops[].share", kNumber, "1", "of all device time"),
      sometimes("profile.ops[].bytes", kInteger, "bytes", "read and written, by a collective sent"),
      sometimes("profile.ops[].most_seconds_of_a_rank_and_step", kNumber, "s",
                "of the rank and step that took longest"),
      sometimes("profile.ops[].most_rank", kInteger, "", "that rank"),
  };
}

Fields machine_fields() {
  return {
      always("memory.peak_bytes_per_rank[]", kInteger, "bytes", "tensors at the most"),
      known("memory.capacity_bytes", kInteger, "bytes", "of a GPU"),
      always("memory.device_bytes_per_rank[]", kInteger, "bytes",
             "blocks, context and communicators at the most: what nvidia-smi shows"),
      always("memory.reserved_bytes", kInteger, "bytes",
             "blocks of the caching allocator, of the fullest rank"),
      always("memory.context_bytes", kInteger, "bytes", "of the CUDA context and the framework"),
      always("memory.communicator_bytes", kInteger, "bytes", "of all communicators of the rank"),
      sometimes("memory.host_bytes", kInteger, "bytes",
                "state kept in host memory, of the rank with most"),
      always("memory.fullest_rank", kInteger, "", "the rank with the highest peak"),
      always("memory.classes.*", kInteger, "bytes",
             "of the fullest rank at its peak: parameters, gradients, optimizer, activations, "
             "communication, router, workspace, control"),
      always("traffic.*_bytes_per_step", kNumber, "bytes",
             "sent by all ranks together to other ranks, by kind of collective"),
      always("traffic.*_off_node_bytes_per_step", kNumber, "bytes", "of these, to other nodes"),
      always("traffic.bytes_per_step_by_purpose.*", kNumber, "bytes",
             "the same by what it was for: dispatch, combine, gradients, ..."),
      sometimes("traffic.collectives[].collective", kText, "",
                "of each kind, purpose, group and algorithm that sends anything; most time first"),
      sometimes("traffic.collectives[].purpose", kText, "", "what it was for"),
      sometimes("traffic.collectives[].group", kText, "",
                "its communicator: ep, tp, dense_dp, expert_dp, ..."),
      sometimes("traffic.collectives[].group_size", kInteger, "", "ranks in it"),
      known(
          "traffic.collectives[].algorithm", kText, "",
          "algorithm and protocol, or way of an exchange, as the modelled machine took them; null: "
          "the library does not tell"),
      sometimes("traffic.collectives[].ranks", kNumber, "", "ranks that send in a step"),
      sometimes("traffic.collectives[].calls_per_step", kNumber, "", "of a rank that sends"),
      sometimes("traffic.collectives[].bytes_per_step", kNumber, "bytes", "that such a rank sends"),
      sometimes("traffic.collectives[].off_node_bytes_per_step", kNumber, "bytes",
                "of these, to other nodes"),
      known("traffic.collectives[].seconds_per_step", kNumber, "s",
            "of such a rank, from the last member's arrival on; null: not measured call by call"),
      known("traffic.collectives[].bus_bandwidth_bytes_per_second", kNumber, "bytes/s",
            "bytes_per_step over seconds_per_step: the bus bandwidth of nccl-tests"),
      always("host_syncs_per_step", kNumber, "",
             "waits of the host for the device, of the rank with most"),
      always("cost.gpu_hours", kNumber, "h", "GPUs x time of all steps"),
      sometimes("cost.price", kNumber, "currency", "with `cluster.price_per_gpu_hour`"),
      sometimes("cost.currency", kText, "", "of the price"),
      sometimes("faults.step_seconds", kNumber, "s",
                "mean of all steps, where the machine's profile has faults and numerics are none"),
      sometimes("faults.step_seconds_without", kNumber, "s", "the same run without them"),
      sometimes("faults.step_seconds_lost", kNumber, "s", "the difference"),
      sometimes("faults.share_lost", kNumber, "1", "of the step without faults"),
      sometimes("faults.tokens_per_second_lost", kNumber, "1/s",
                "of the throughput without faults"),
      sometimes("faults.each[].fault", kText, "", "one of them"),
      sometimes("faults.each[].step_seconds_lost", kNumber, "s",
                "what would be won if this one were not there and the others were"),
      sometimes("faults.each[].share_lost", kNumber, "1", "of the step without this one"),
      sometimes("faults.each[].tokens_per_second_lost", kNumber, "1/s",
                "of the throughput without this one"),
  };
}

Fields routing_fields() {
  return {
      always("routing.window_steps", kInteger, "", "the last steps that the means below are over"),
      known("routing.router_share_of_compute", kNumber, "1",
            "of the computing in the timeline's steps: router ops, the product of the logits, and "
            "the "
            "two of its backward"),
      always("routing.layers[].layer", kInteger, "", "an MoE layer, by its number in the model"),
      always("routing.layers[].load_cv", kNumber, "1",
             "standard deviation / mean of the assignments of its experts"),
      always("routing.layers[].imbalance_experts", kNumber, "1", "max / mean over experts"),
      always("routing.layers[].imbalance_ranks", kNumber, "1",
             "max / mean over ranks, of what their experts get"),
      always("routing.layers[].entropy", kNumber, "1",
             "entropy of the loads over ln E: 1 when balanced"),
      always("routing.layers[].dead_share", kNumber, "1", "experts below 1% of the mean load"),
      always("routing.layers[].dropped_share", kNumber, "1", "assignments beyond the capacity"),
      known("routing.layers[].mean_probability[]", kNumber, "1", "mean router score, by expert"),
      known("routing.layers[].load_share[]", kNumber, "1", "share of the assignments, by expert"),
      known("routing.layers[].churn", kNumber, "1",
            "share of the probe batch whose first expert changed since the last probe"),
      known("routing.layers[].router_entropy", kNumber, "1",
            "mean over the probe's tokens of the entropy of scores, over ln E"),
      known("routing.layers[].logit_std", kNumber, "",
            "of the logits over experts, root mean square over the probe's tokens"),
      known("routing.layers[].harm", kNumber, "1",
            "share of kept assignments whose weight has a positive derivative of the loss"),
      known("routing.layers[].aux_loss", kNumber, "", "E x sum f_i P_i: 1 when balanced"),
      known("routing.layers[].z_loss", kNumber, "", "mean of logsumexp(logits) squared"),
      known("routing.layers[].importance_cv2", kNumber, "",
            "squared coefficient of variation of summed scores"),
      known("routing.layers[].load_variance", kNumber, "", "variance of the counts of experts"),
      sometimes(
          "verdicts[].kind", kText, "",
          "oscillating, collapsed, imbalanced, rotating, diverging, out_of_memory, gpu_slowed, "
          "gpu_hot, stable"),
      {"verdicts[].layer", kInteger, true, true, "", "the layer it is about"},
      {"verdicts[].onset_step", kInteger, true, true, "", "since when"},
      {"verdicts[].end_step", kInteger, true, true, "", "until when; null: it held at the end"},
      {"verdicts[].strength", kText, true, true, "", "strong or weak"},
      {"verdicts[].period_steps", kNumber, true, true, "steps", "of an oscillation"},
      {"verdicts[].amplitude", kNumber, true, true, "mean loads", "swing of the loads"},
      sometimes("verdicts[].confidence", kNumber, "1", "0.5 on the line, towards 1 beyond it"),
      sometimes("verdicts[].evidence", kText, "", "the numbers and the lines they crossed"),
      sometimes("verdicts[].advice", kText, "",
                "keys that act on it, and what they did in measured runs"),
  };
}

}  // namespace

std::vector<ReportField> report_fields() {
  Fields all;
  for (const Fields& part : {run_fields(), time_fields(), machine_fields(), routing_fields()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace moetwin
