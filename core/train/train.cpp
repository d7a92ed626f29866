#include "core/train/train.h"

namespace moetwin {

void train_rank(Backend& device, const Scenario& scenario, const Grid& grid,
                const TrainerServices& services) {
  Trainer(device, scenario, grid, services).run();
}

}  // namespace moetwin
