// Layouts on the real backend, emulated: each trains what one rank trains, and issues what the
// modelled cluster issues.
#include <catch2/catch.hpp>
#include <map>

#include "tests/cuda_on_host/backend/training.h"
#include "tests/equivalence/layouts.h"

using namespace moetwin;
using namespace moetwin::test;

namespace {

constexpr size_t kCrossSection = 40;

// Real GPUs have no fp64.
Scenario in_fp32(Scenario s) {
  s.training_config.dtype = "fp32";
  return s;
}

void check_layout(const Layout& layout, std::map<std::string, TrainResult>& references) {
  INFO(layout.name());
  const std::string key = reference_key(layout);
  if (!references.count(key))
    references[key] = train_with_ops(in_fp32(reference_scenario(layout, 1)), emulated_gpus, true);
  const TrainResult& one_rank = references.at(key);
  const Scenario scenario = in_fp32(layout_scenario(layout, 1));
  const TrainResult real = train_with_ops(scenario, emulated_gpus, true),
                    modelled = train_with_ops(scenario, modelled_gpus, true);
  for (const TrainResult* expected : {&one_rank, &modelled}) {
    const Distance gradients = distance(real.gradients, expected->gradients);
    CAPTURE(expected == &one_rank ? "one rank" : "modelled", gradients.where);
    CHECK(gradients.value <= 1e-5);
    CHECK(loss_distance(real, *expected) <= 1e-5);
    CHECK(real.counts == expected->counts);
  }
  CHECK(real.text.size() > 1000);
  CHECK(first_difference(modelled.text, real.text) == "");
}

// The layouts of the cross-section whose place modulo `of` is `part`.
void check_part(size_t part, size_t of) {
  const std::vector<Layout> cover = pairwise_cover();
  REQUIRE(cover.size() >= kCrossSection);
  std::map<std::string, TrainResult> references;
  for (size_t i = part; i < kCrossSection; i += of)
    check_layout(cover[i * cover.size() / kCrossSection], references);
}

}  // namespace

TEST_CASE("five layouts of the forty on both machines and on one rank", "[layouts]") {
  check_part(3, 8);
}

TEST_CASE("the other layouts of the forty", "[more-layouts]") {
  for (const size_t part : {0, 1, 2, 4, 5, 6, 7}) check_part(part, 8);
}
