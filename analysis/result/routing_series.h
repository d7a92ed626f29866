#pragma once
// What a run's routers did, step by step: assignments of training and, where there is one, the
// probe batch. Read from routing.csv and probe.csv of ours, or from the JSON lines that Megatron
// writes.

#include <cstdint>
#include <string>
#include <vector>

namespace moetwin {

/// The router on a fixed batch without noise, every n-th step (probe.csv). NaN where unknown.
struct ProbeSeries {
  std::vector<int64_t> steps;
  std::vector<double> churn;           ///< share of tokens whose top-1 changed since the last probe
  std::vector<double> share;           ///< [n,E] share of tokens with top-1 e; rows sum to 1
  std::vector<double> router_entropy;  ///< mean over tokens of H(p_t) / ln E
  std::vector<double> logit_std;       ///< over experts, root mean square over tokens
  std::vector<double> harm;            ///< share of routed tokens with dL/dweight > 0
  std::vector<double> bias;            ///< [n,E] selection bias; empty: none
  size_t size() const { return steps.size(); }
};

/// Assignments by source rank in one step: the bytes of an all-to-all are in proportion to them.
struct SourceCounts {
  int64_t step = -1;
  std::vector<int64_t> ranks;    ///< ascending
  std::vector<double> assigned;  ///< [ranks,E]
};

struct LayerSeries {
  int64_t layer = 0;
  int64_t experts = 0;
  std::vector<int64_t> steps;  ///< ascending
  std::vector<double> load;    ///< [n,E] assignments before dropping, all ranks
  std::vector<double> kept;    ///< [n] assignments after dropping; NaN: unknown
  SourceCounts sources;        ///< of the last step that has rows by rank
  ProbeSeries probe;
  size_t size() const { return steps.size(); }
};

struct RoutingSeries {
  std::vector<LayerSeries> layers;  ///< ascending
  std::string origin;               ///< the files, for messages
};

/// routing.csv (`step,layer,rank,expert,assigned,kept`): rows with rank `all`, or the sum over
/// ranks where a step has none. Throws Error(configuration) with file, line and rule.
RoutingSeries read_routing_csv(const std::string& path);

/// probe.csv (`step,layer,churn,router_entropy,logit_std,harm,share_0..share_{E-1}[,bias_0..]`;
/// columns other than step, layer and the shares may be absent) into the layers it names.
void read_probe_csv(const std::string& path, RoutingSeries& series);

/// Megatron's router trace (`router_trace_rank<r>.jsonl`, records with `top_indices`) or tokens per
/// expert (`rank<r>.jsonl`, records with `tpe`: experts local to the rank, rank r holds column r
/// mod (experts / local)). `experts` 0: the largest number seen + 1, or local experts x files.
RoutingSeries read_megatron_routing(const std::vector<std::string>& files, int64_t experts = 0);

}  // namespace moetwin
