// What a checkpoint sees of the parameters: every element is owned by exactly one rank, and what is
// written through the pieces is what layers read on every rank.

#include <catch2/catch.hpp>
#include <map>

#include "backends/sim/cluster.h"
#include "core/train/train.h"
#include "tests/core/train/small_training.h"
#include "tests/support/in_child.h"
#include "tests/support/train_run.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

// Small integers, exact in every dtype, different for neighbours and for parameters.
double mark(const Parameter& p, int64_t global) {
  return static_cast<double>((static_cast<int64_t>(p.init_stream % 89) + global) % 97);
}

struct Caught {
  int64_t unowned = 0, owned_twice = 0, wrong = 0, checked = 0;
};

Caught fill_through_pieces(const Scenario& scenario) {
  return in_child([&] {
    const Grid grid(scenario.distributed_config, scenario.model_config.moe_layer_config.num_experts,
                    scenario.model_config.expert_width());
    Caught fault;
    std::map<std::string, std::vector<int>> owners;
    const auto cluster = make_sim_cluster(scenario, sim_options());
    cluster->run([&](Backend& device) {
      Trainer trainer(device, scenario, grid, {});
      Context& context = trainer.context();
      for (const Parameter& p : trainer.parameters().all())
        owners[p.name].resize(static_cast<size_t>(p.global[0] * p.global[1] * p.global[2]));
      for (FlatGroup& group : trainer.groups())
        group.for_each_piece(context, [&](const StatePiece& piece) {
          const Parameter& p = *piece.parameter;
          std::vector<float> marks;
          for (int64_t i = 0; i < piece.count; ++i) {
            const int64_t global = p.global_index(piece.first + i);
            marks.push_back(static_cast<float>(mark(p, global)));
            if (piece.owner) ++owners[p.name][static_cast<size_t>(global)];
          }
          if (!piece.m.defined() || piece.m.elements() != piece.count ||
              piece.v.elements() != piece.count || piece.weight.dtype != DType::f32)
            ++fault.wrong;
          context.device.write(piece.weight, marks.data(), context.streams.compute);
        });
      trainer.reducer().weights_changed(context);
      for (const Parameter& p : trainer.parameters().all()) {
        const std::vector<double> values = to_doubles(trainer, p.value);
        for (int64_t i = 0; i < p.elements(); ++i, ++fault.checked)
          if (values[static_cast<size_t>(i)] != mark(p, p.global_index(i))) ++fault.wrong;
      }
    });
    for (const auto& [name, counts] : owners)
      for (const int n : counts) {
        fault.unowned += n == 0;
        fault.owned_twice += n > 1;
      }
    return fault;
  });
}

}  // namespace

TEST_CASE("every element is owned once; weights written to pieces reach all ranks", "[P142]") {
  struct Case {
    int64_t dp, ep, experts, zero;
    const char* dtype;
  };
  for (const Case& c :
       {Case{1, 1, 4, 0, "fp32"}, Case{4, 2, 4, 0, "fp32"}, Case{4, 2, 4, 1, "fp32"},
        Case{3, 2, 6, 1, "bf16"}, Case{2, 4, 2, 1, "bf16"}}) {
    INFO("DP=" << c.dp << " EP=" << c.ep << " zero=" << c.zero << " " << c.dtype);
    Scenario s = small_training(c.dp, c.ep, c.experts, 1, 1);
    s.distributed_config.zero_stage = c.zero;
    s.training_config.dtype = c.dtype;
    s.training_config.optimizer = "adamw";
    const Caught fault = fill_through_pieces(s);
    CHECK(fault.unowned == 0);
    CHECK(fault.owned_twice == 0);
    CHECK(fault.wrong == 0);
    CHECK(fault.checked > 1000);
  }
}
