// Stands in for the modelled cluster in a program that must run where SimGrid is not.
#include "backends/sim/cluster.h"
#include "core/base/error.h"

namespace moetwin {

std::unique_ptr<ModelledCluster> make_sim_cluster(const Scenario&, const SimOptions&) {
  throw Error(ErrorClass::configuration,
              "--backend sim: this program was built without the modelled cluster; legal: "
              "--backend cuda");
}

std::unique_ptr<ModelledCluster> make_sim_cluster(const Scenario& scenario, ClusterProfile,
                                                  const SimOptions& options) {
  return make_sim_cluster(scenario, options);
}

}  // namespace moetwin
