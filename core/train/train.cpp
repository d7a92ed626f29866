#include "core/train/train.h"

#include "core/device/checked.h"

namespace moetwin {

void train_rank(Backend& device, const Scenario& scenario, const Grid& grid,
                const TrainerServices& services) {
  if (!scenario.output.check_access) {
    Trainer(device, scenario, grid, services).run();
    return;
  }
  CheckedBackend checked(device);
  Trainer(checked, scenario, grid, services).run();
}

}  // namespace moetwin
