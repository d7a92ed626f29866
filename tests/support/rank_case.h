#pragma once
// One rank of the modelled cluster with what a layer needs, without a trainer: for tests of layers
// and of their parts alone.

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "core/device/allocator.h"
#include "core/moe/balance.h"
#include "core/moe/dispatcher.h"
#include "core/moe/router.h"
#include "core/parallel/communicators.h"
#include "core/parallel/flat_parameters.h"
#include "core/scenario/scenario.h"
#include "core/topology/grid.h"

namespace moetwin::test {

class RankCase {
 public:
  RankCase(Backend& device, const Scenario& scenario, const Grid& grid);

  Backend& device;
  const Scenario& scenario;
  const Grid& grid;
  int64_t rank;
  Coordinates at;
  Allocator memory;  ///< poisoned
  Context context;
  Communicators communicators;
  TensorParallel tp;
  ParameterSet parameters;
  Tensor losses;  ///< of all MoE layers, cleared
  BalanceState balance;
  std::vector<FlatGroup> groups;

  /// Once all parts are made: gives parameters their memory, draws them, clears their gradients.
  void start();
  Parameter& parameter(const std::string& name);

  /// Values as a tensor of `dtype` (fp64, fp32, i32, i64).
  Tensor upload(const Shape& shape, DType dtype, const std::vector<double>& values);
  /// Of the scenario's dtype.
  Tensor upload(const Shape& shape, const std::vector<double>& values) {
    return upload(shape, context.dtype, values);
  }
  void write(const Tensor& tensor, const std::vector<double>& values);
  std::vector<double> download(const Tensor& tensor);

  RouterSetup router_setup(int64_t moe_layer = 0);
  std::unique_ptr<Dispatcher> dispatcher(int64_t chunks = 1);
  /// Tokens [first, first + tokens) of the global batch; `share` as if `all` tokens were in it.
  static MicroBatch batch(int64_t first, int64_t tokens, int64_t all);

  /// This rank's gradients, not reduced, as two lists: a key of (parameter, global element), and
  /// the value. Sums over ranks by key are the global gradients.
  std::vector<std::vector<double>> gradients();
};

/// fp64, E experts of which a token takes k, H = 8 and F = 16, poisoned memory, no balance losses.
Scenario layer_scenario(int64_t dp, int64_t ep, int64_t experts, int64_t top_k);

/// What a rank's program brings back: lists of numbers.
using Lists = std::vector<std::vector<double>>;

/// Runs `program` on every rank of a machine, by default the modelled cluster, in a child process,
/// under the access check; its lists, by rank.
std::vector<Lists> on_ranks(
    const Scenario& scenario, const std::function<Lists(RankCase&)>& program,
    const std::function<std::unique_ptr<Cluster>(const Scenario&)>& machine = nullptr);

/// The two lists of every rank that start at list `first`, summed by key.
std::map<double, double> summed(const std::vector<Lists>& ranks, size_t first);

/// n seeded normal draws.
std::vector<double> draws(int64_t n, uint64_t seed);

}  // namespace moetwin::test
