#include "tests/equivalence/same_training.h"

#include <catch2/catch.hpp>
#include <map>

namespace moetwin::test {

void check_same_training(const TrainResult& result, const TrainResult& one_rank, size_t steps) {
  const Distance gradients = distance(result.gradients, one_rank.gradients);
  CAPTURE(gradients.where);
  CHECK(gradients.value <= 1e-9);
  const Distance parameters = distance(result.parameters, one_rank.parameters);
  CAPTURE(parameters.where);
  CHECK(parameters.value <= 1e-9);
  CHECK(result.counts == one_rank.counts);
  REQUIRE(result.losses.size() == steps);
  for (size_t s = 0; s < steps; ++s) {
    CHECK(result.losses[s] == Approx(one_rank.losses[s]).epsilon(1e-9));
    CHECK(result.gradient_norms[s] == Approx(one_rank.gradient_norms[s]).epsilon(1e-9));
  }
  std::map<std::string, uint64_t> first;
  for (const auto& of_rank : result.checksums)
    for (const auto& [name, hash] : of_rank) CHECK(first.emplace(name, hash).first->second == hash);
}

}  // namespace moetwin::test
