#pragma once
// Recorded routing to be replayed: a routing.csv of ours, or the JSON lines that Megatron writes.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/moe/routing_resampling.h"
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
  /// Makes it a proxy: from now on its shares are those of another model with `layers` MoE layers
  /// (their numbers, ascending), of any number of sources and tokens
  /// (core/moe/routing_resampling.h).
  void resample(const std::vector<int64_t>& layers);
  /// Step 1 is the trace's step number `step` instead of its first.
  void begin_at(int64_t step) { first_ = step - 1; }
  /// In proportion to the assignments of source `source` of `sources` to each expert. Step s is the
  /// trace's step number (s - 1) % steps() in ascending order. With as many sources as the trace
  /// has, each is its own; otherwise all have the shares of the total. Throws Error(configuration)
  /// when the trace lacks the layer.
  std::vector<double> shares(int64_t step, int64_t layer, int64_t source, int64_t sources) const;
  /// The same, or of a proxy the shares of a source with `assignments`; `seed` gives their chance.
  std::vector<double> shares(int64_t step, int64_t layer, int64_t source, int64_t sources,
                             int64_t assignments, uint64_t seed) const;

 private:
  struct Layer : RecordedStep {  ///< sources: by_rank in ascending order of ranks
    std::map<int64_t, std::vector<int64_t>> by_rank;  ///< assignments to each expert
  };
  /// What one of the recorded layers wanted.
  struct Wanted {
    double dispersion = 1;
    std::vector<std::vector<double>> shares;  ///< [step][E]
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
  int64_t first_ = 0;
  std::vector<Wanted> wanted_;           ///< of a proxy, by recorded layer
  std::map<int64_t, size_t> wanted_of_;  ///< layer of the other model -> index into wanted_
};

/// The trace of a scenario whose routing replays one (`trace`, W10, also as the substitute of a
/// learned router with numerics none), or the recorded run of its proxy; null for every other
/// scenario. routing.trace_file and routing.scenario may be globs; they are relative to the
/// scenario's directory.
std::shared_ptr<const RoutingTrace> load_trace(const Scenario& scenario);

}  // namespace moetwin
