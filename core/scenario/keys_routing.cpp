// routing: which router, how it scores and selects, and the scripted workloads.
#include <fmt/format.h>

#include "core/scenario/key_list.h"

namespace moetwin {
namespace {

std::vector<std::string> scripted_sources() {
  std::vector<std::string> sources = {"uniform"};
  for (int i = 0; i <= 11; ++i) sources.push_back(fmt::format("W{}", i));
  sources.push_back("trace");
  sources.push_back("proxy");
  return sources;
}

}  // namespace

void add_routing_keys(KeyList& list) {
  const std::vector<std::string> sources = scripted_sources();
  list.section("routing", "Which router, and how it scores and selects.");
  std::vector<std::string> with_learned = sources;
  with_learned.insert(with_learned.begin(), "learned");
  list.key(MOETWIN_KEY(routing.source), "learned, or a scripted load.").one_of(with_learned);
  list.key(MOETWIN_KEY(routing.without_numerics),
           "What stands for a learned router with numerics none.")
      .one_of(sources);
  list.key(MOETWIN_KEY(routing.score_function), "From logits to scores.")
      .one_of({"softmax", "sigmoid"});
  list.key(MOETWIN_KEY(routing.jitter_epsilon),
           "Training: the router's input is multiplied by U[1-eps, 1+eps]; 0: off.")
      .at_least(0)
      .below(1);
  list.section("routing.noise", "Noise on the router's logits while training.");
  list.key(MOETWIN_KEY(routing.noise.kind), "Distribution.").one_of({"none", "gaussian", "gumbel"});
  list.key(MOETWIN_KEY(routing.noise.scale), "Multiplies the noise.").at_least(0);
  list.key(MOETWIN_KEY(routing.normalize_weights),
           "Divide the k weights by their p-norm with this p; 0: raw scores.")
      .at_least(0);
  list.key(MOETWIN_KEY(routing.weight_scale), "Multiplies the weights.").above(0);
  list.key(MOETWIN_KEY(routing.groups),
           "Groups of experts of the group-limited top-k; 1: no limit.")
      .at_least(1);
  list.key(MOETWIN_KEY(routing.kept_groups), "Groups a token may choose from.").at_least(1);
  list.key(MOETWIN_KEY(routing.init_scale),
           "Multiplies the standard deviation of initial router weights.")
      .at_least(0);
  list.key(MOETWIN_KEY(routing.weight_delay_steps),
           "Training: at step t the router acts on the weights it had at step max(1, t - d), "
           "forward "
           "and backward; 0: on those of now.")
      .in("steps")
      .between(0, 1 << 10);
  list.key(MOETWIN_KEY(routing.trace_file),
           "routing.csv of a run, or Megatron JSONL, for trace and W10.")
      .files();
  list.key(MOETWIN_KEY(routing.scenario),
           "For proxy: a smaller scenario, trained first; or its run directory, routing.csv or "
           "Megatron JSONL.")
      .files();
  list.key(MOETWIN_KEY(routing.first_step),
           "Step of the trace, or of the proxy's run, that step 1 replays.")
      .in("steps")
      .at_least(1);
  list.section("routing.probe",
               "A fixed batch routed without noise, so that only the router can move its choices: "
               "probe.csv, churn, verdicts. With numerics full and a learned router.");
  list.key(MOETWIN_KEY(routing.probe.every_steps), "Steps from one probe to the next; 0: off.")
      .in("steps")
      .at_least(0);
  list.key(MOETWIN_KEY(routing.probe.sequences),
           "The first sequences of step 1; 0: 512 tokens, at most global_batch_size sequences.")
      .in("sequences")
      .at_least(0);
  list.section("routing.workload", "Parameters of the scripted loads W0 to W11.");
  list.key(MOETWIN_KEY(routing.workload.hot_fraction),
           "Share of assignments on the hot set (W1, W2, W3, W6, W7, W11).")
      .between(0, 1);
  list.key(MOETWIN_KEY(routing.workload.hot_experts), "Size of the hot set (W1, W3, W6, W7).")
      .at_least(1);
  list.key(MOETWIN_KEY(routing.workload.hot_rank), "Hot EP rank (W2, W11).").at_least(0);
  list.key(MOETWIN_KEY(routing.workload.ragged_ratio),
           "Tokens of the largest / of the smallest source rank (W4).")
      .at_least(1);
  list.key(MOETWIN_KEY(routing.workload.zero_experts), "Experts without tokens (W5).").at_least(0);
  list.key(MOETWIN_KEY(routing.workload.period_steps), "Period (W6, W7, W9).")
      .in("steps")
      .at_least(1);
  list.key(MOETWIN_KEY(routing.workload.burst_steps), "Length of a burst (W7).")
      .in("steps")
      .at_least(0);
  list.key(MOETWIN_KEY(routing.workload.max_violation), "Target of max load / mean load - 1 (W8).")
      .at_least(0);
  list.key(MOETWIN_KEY(routing.workload.amplitude),
           "Amplitude of the oscillation in units of the mean load (W9).")
      .between(0, 1);
  list.section("rebalancing",
               "Cures of uneven load that leave the mathematics as it is: which rank works on an "
               "expert's tokens beside its own.");
  list.key(MOETWIN_KEY(rebalancing.kind),
           "placement: experts move to other ranks every interval; replication: of the heaviest "
           "experts, chosen every interval; shadowing: hot experts on "
           "every rank for one micro-batch; spill: what is too much for a rank goes to others.")
      .one_of({"none", "placement", "replication", "shadowing", "spill"});
  list.key(
          MOETWIN_KEY(rebalancing.interval_steps),
          "placement, replication: steps whose loads choose places and replicas for the next ones.")
      .in("steps")
      .at_least(1);
  list.key(MOETWIN_KEY(rebalancing.redundant_experts),
           "replication: replicas of an EP group, equally many on each of its ranks.")
      .at_least(0);
  list.key(MOETWIN_KEY(rebalancing.network_bytes_per_second),
           "shadowing: what a rank is reckoned to send, in the decision alone.")
      .in("bytes/s")
      .above(0);
  list.key(MOETWIN_KEY(rebalancing.flop_per_second),
           "shadowing: what a rank is reckoned to compute, in the decision alone.")
      .in("FLOP/s")
      .above(0);
  list.key(MOETWIN_KEY(rebalancing.imbalance_threshold),
           "placement, spill: nothing moves where the fullest rank has at most so many times the "
           "mean.")
      .at_least(1);
  list.key(MOETWIN_KEY(rebalancing.tokens_factor),
           "spill: most tokens of a rank in units of the mean.")
      .at_least(1);
  list.key(MOETWIN_KEY(rebalancing.min_tokens),
           "spill: fewer tokens than these are not worth an expert's weights.")
      .in("tokens")
      .at_least(1);
}

}  // namespace moetwin
