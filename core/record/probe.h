#pragma once
// What the probe says of a layer's router: one fixed batch, routed without noise. Each rank hands
// in its sequences; sums are taken in the order of the sequences, so that the layout does not show.

#include <cstdint>
#include <string>
#include <vector>

namespace moetwin {

/// One sequence of the probe batch in one MoE layer.
struct ProbeSequence {
  int64_t sequence = 0;  ///< place in the probe batch
  int64_t tokens = 0;
  std::vector<int64_t> first;  ///< [E] tokens whose first choice is each expert
  int64_t changed = -1;        ///< tokens whose first choice is another than last time; -1: no last
  double entropy = 0;          ///< sum over tokens of the entropy of p / sum p, in nats
  double variance = 0;         ///< sum over tokens of the variance of the logits over experts
};

/// What one rank knows of one MoE layer.
struct ProbePart {
  std::vector<ProbeSequence> sequences;
  /// Assignments of this rank's training batch that were kept, and those of them with a positive
  /// derivative of the loss by their weight.
  int64_t weighed = 0, harmed = 0;
  std::vector<double> bias;  ///< [E] balance bias, the same on every rank; empty: none
};

/// One row of probe.csv.
struct ProbeRow {
  std::vector<double> share;  ///< [E], sums to 1
  double churn = 0;           ///< NaN: the first probe
  double router_entropy = 0;  ///< 1 when every expert has the same score
  double logit_std = 0;       ///< sqrt of the mean variance of a token's logits over experts
  double harm = 0;            ///< NaN: nothing was routed
  std::vector<double> bias;   ///< empty: none
};

/// Gathers the parts of all ranks.
class ProbeMerge {
 public:
  void add(const ProbePart& part);
  bool empty() const { return sum_.sequences.empty(); }
  ProbeRow row() const;

 private:
  ProbePart sum_;
};

/// With `bias`: columns bias_0 to bias_(E-1).
std::string probe_csv_header(int64_t experts, bool bias);
std::string probe_csv_line(int64_t step, int64_t layer, const ProbeRow& row);

}  // namespace moetwin
