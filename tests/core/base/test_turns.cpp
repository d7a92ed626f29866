#include <catch2/catch.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/base/turns.h"

using namespace moetwin;

namespace {

/// Writes `name` and its number before each of `passes` passes, and once at the end.
std::function<void()> writer(Turns& turns, std::string& out, char name, int passes,
                             int throws_at = -1) {
  return [&turns, &out, name, passes, throws_at] {
    for (int i = 0; i <= passes; ++i) {
      out += name + std::to_string(i) + " ";
      if (i == throws_at) throw std::runtime_error(std::string(1, name) + " failed");
      if (i < passes) turns.pass();
    }
  };
}

/// Says when it goes out of scope.
struct Witness {
  std::string& out;
  ~Witness() { out += "unwound "; }
};

}  // namespace

TEST_CASE("two functions take turns; who is left goes on alone") {
  const auto order = [](int first, int second) {
    Turns turns;
    std::string out;
    turns.run(writer(turns, out, 'a', first), writer(turns, out, 'b', second));
    CHECK_FALSE(turns.others());
    return out;
  };
  CHECK(order(2, 2) == "a0 b0 a1 b1 a2 b2 ");
  CHECK(order(3, 1) == "a0 b0 a1 b1 a2 a3 ");
  CHECK(order(0, 2) == "a0 b0 b1 b2 ");
  CHECK(order(2, 0) == "a0 b0 a1 a2 ");
  CHECK(order(0, 0) == "a0 b0 ");
}

TEST_CASE("outside of a run a pass is nothing; one object serves many runs") {
  Turns turns;
  turns.pass();
  std::string out;
  for (int i = 0; i < 1000; ++i) {
    out.clear();
    turns.run(writer(turns, out, 'a', 1), writer(turns, out, 'b', 1));
    turns.pass();
  }
  CHECK(out == "a0 b0 a1 b1 ");
}

TEST_CASE("what one throws ends the other and comes out of the run") {
  Turns turns;
  std::string out;
  const auto with_witness = [&out](std::function<void()> body) {
    return [&out, body] {
      const Witness witness{out};
      body();
    };
  };
  SECTION("the first, before the second has begun") {
    CHECK_THROWS_WITH(turns.run(writer(turns, out, 'a', 2, 0), writer(turns, out, 'b', 2)),
                      "a failed");
    CHECK(out == "a0 ");
  }
  SECTION("the first, while the second waits") {
    CHECK_THROWS_WITH(
        turns.run(writer(turns, out, 'a', 2, 1), with_witness(writer(turns, out, 'b', 2))),
        "a failed");
    CHECK(out == "a0 b0 a1 unwound ");
  }
  SECTION("the first, alone at the end") {
    CHECK_THROWS_WITH(turns.run(writer(turns, out, 'a', 2, 2), writer(turns, out, 'b', 0)),
                      "a failed");
    CHECK(out == "a0 b0 a1 a2 ");
  }
  SECTION("the second, while the first waits") {
    CHECK_THROWS_WITH(
        turns.run(with_witness(writer(turns, out, 'a', 2)), writer(turns, out, 'b', 2, 1)),
        "b failed");
    CHECK(out == "a0 b0 a1 b1 unwound ");
  }
  // And again without a fault.
  out.clear();
  turns.run(writer(turns, out, 'a', 1), writer(turns, out, 'b', 1));
  CHECK(out == "a0 b0 a1 b1 ");
}

TEST_CASE("a run inside of each turn of another") {
  Turns outer;
  std::string out;
  const auto nested = [&] {
    Turns inner;
    inner.run(writer(inner, out, 'c', 1), writer(inner, out, 'd', 1));
    outer.pass();
  };
  outer.run(nested, nested);
  CHECK(out == "c0 d0 c1 d1 c0 d0 c1 d1 ");
}
