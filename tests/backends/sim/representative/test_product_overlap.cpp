// Sequence-parallel communication beside products, by arithmetic.
#include <catch2/catch.hpp>

#include "backends/sim/representative/product_overlap.h"

using namespace moetwin;

namespace {
/// A gather of `seconds` as the list's only item, and the clock at its end.
struct Case {
  ItemList items;
  Clocks clocks{};
  explicit Case(double seconds) {
    Item item;
    item.kind = Item::Kind::collective;
    item.clock = kComputeClock;
    item.seconds = seconds;
    items.push_back(item);
    clocks[kComputeClock] = seconds;
  }
};
}  // namespace

TEST_CASE("a gather in four pieces: the first one waits, the others go on beside the product") {
  for (const double product : {0.0, 1.0, 4.0, 100.0}) {
    Case c(4);
    ProductOverlap overlap(4);
    overlap.gather(4, c.items);
    overlap.product(product, c.items, c.clocks);
    // Three pieces of one second each, beside three quarters of the product.
    const double exposed = 4 - std::min(3.0, 0.75 * product);
    CHECK(c.items[0].seconds == Approx(exposed));
    CHECK(c.clocks[kComputeClock] == Approx(exposed));
    // Beside one product only.
    overlap.product(100, c.items, c.clocks);
    CHECK(c.items[0].seconds == Approx(product > 0 ? exposed : 1));
  }
}

TEST_CASE("a reduction goes on beside the product that makes it, whole ones beside nothing") {
  Case c(0);
  ProductOverlap overlap(4), whole(1);
  overlap.product(2, c.items, c.clocks);
  CHECK(overlap.reduction(4) == Approx(1.5));  // three quarters of the product
  CHECK(overlap.reduction(4) == 0);            // it is taken
  overlap.product(8, c.items, c.clocks);
  CHECK(overlap.reduction(4) == Approx(3));  // three of four pieces
  whole.product(1.5, c.items, c.clocks);
  CHECK(whole.beside_latest(4) == 1.5);
  whole.product(8, c.items, c.clocks);
  whole.gather(4, c.items);
  CHECK(whole.reduction(4) == 0);
}

TEST_CASE("what was cut off is not shortened any more") {
  Case c(4);
  ProductOverlap overlap(4);
  overlap.gather(4, c.items);
  overlap.cut();
  overlap.product(8, c.items, c.clocks);
  CHECK(c.items[0].seconds == 4);
}
