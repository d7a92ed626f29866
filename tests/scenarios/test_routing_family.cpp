// Every scenario of the family about routing shows its own verdict. One seed of three of them by
// default; ten seeds of all in the suite `slow`.

#include <catch2/catch.hpp>

#include "tests/scenarios/routing_family.h"

using namespace moetwin::test;

TEST_CASE("the case, its cure and a bias that is too fast, one seed each", "[short]") {
  int seen = 0;
  for (const FamilyMember& member : routing_family()) {
    if (member.name != "routing-oscillation" && member.name != "routing-oscillation-cured" &&
        member.name != "bias-oscillation")
      continue;
    CHECK(shortcoming(member, 1) == "");
    ++seen;
  }
  CHECK(seen == 3);
}

TEST_CASE("ten seeds of every scenario about routing") {
  for (const FamilyMember& member : routing_family()) {
    int64_t shown = 0;
    std::string fell_short;
    for (int64_t seed = 1; seed <= 10; ++seed) {
      const std::string what = shortcoming(member, seed);
      shown += what.empty();
      if (!what.empty()) fell_short += what + "\n";
    }
    INFO(member.name << ": " << shown << " of 10\n" << fell_short);
    CHECK(shown >= member.least_of_ten);
  }
}
