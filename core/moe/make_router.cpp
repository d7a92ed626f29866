#include "core/moe/learned_router.h"
#include "core/moe/router.h"
#include "core/moe/scripted_router.h"

namespace moetwin {

std::unique_ptr<Router> make_router(ParameterSet& parameters, const RouterSetup& setup) {
  if (setup.routing.source != "learned")
    return std::make_unique<ScriptedRouter>(setup, Script(setup, setup.routing.source));
  if (setup.numerics) return std::make_unique<LearnedRouter>(parameters, setup, std::nullopt);
  return std::make_unique<LearnedRouter>(parameters, setup,
                                         Script(setup, setup.routing.without_numerics));
}

}  // namespace moetwin
