#pragma once
// Recorded routing to be replayed: a routing.csv of ours, or the JSON lines that Megatron writes.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/scenario/scenario.h"

namespace moetwin {

/// Counts per step, layer, source rank and expert. Immutable once read; one serves all ranks.
///
/// routing.csv (header `step,layer,rank,expert,assigned,kept`): `assigned` of the rows with a rank;
/// of the rows with rank `all` where a step and layer has no others. Megatron's router trace (one
/// record per rank, step and layer with `top_indices`): the sources are its ranks. Megatron's
/// tokens per expert (one record per rank, iteration and layer with `tpe`): summed over
/// micro-batches, of experts local to a rank; rank r, from the file's name, holds the experts from
/// (r mod (E / local))
/// * local on, and sources are unknown. Layers are numbered from 0 in all of them.
class RoutingTrace {
 public:
  /// One or more files of one kind. Throws Error(configuration) with file, line and rule, also when
  /// they are of another number of experts.
  RoutingTrace(const std::vector<std::string>& files, int64_t experts);

  int64_t steps() const { return static_cast<int64_t>(steps_.size()); }
  /// In proportion to the assignments of source `source` of `sources` to each expert. Step s is the
  /// trace's step number (s - 1) % steps() in ascending order. With as many sources as the trace
  /// has, each is its own; otherwise all have the shares of the total. Throws Error(configuration)
  /// when the trace lacks the layer.
  std::vector<double> shares(int64_t step, int64_t layer, int64_t source, int64_t sources) const;

 private:
  struct Layer {
    std::map<int64_t, std::vector<int64_t>> by_rank;  ///< assignments to each expert
    std::vector<int64_t> all;                         ///< of every rank
    std::vector<std::vector<int64_t>> sources;        ///< by_rank in ascending order of ranks
  };
  using Layers = std::map<int64_t, Layer>;
  enum class Kind { csv, indices, local_experts };

  void read_csv(const std::string& file);
  void read_json_lines(const std::string& file);
  void add(std::vector<int64_t>& counts, int64_t expert, int64_t count);
  void finish(Layer& layer);

  std::string name_;  ///< first file, for messages
  int64_t experts_;
  Kind kind_ = Kind::csv;
  int64_t seen_ = 0;                      ///< largest expert number + 1
  std::map<int64_t, Layers> steps_read_;  ///< while reading
  std::vector<Layers> steps_;
};

/// The trace of a scenario whose routing replays one (`trace`, W10, also as the substitute of a
/// learned router with numerics none); null for every other scenario. routing.trace_file may be a
/// glob; it is relative to the scenario's directory.
std::shared_ptr<const RoutingTrace> load_trace(const Scenario& scenario);

}  // namespace moetwin
