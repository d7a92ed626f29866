// Tensor-parallel collectives beside the products of their own stream.
#include <catch2/catch.hpp>

#include "backends/sim/runtime/beside_products.h"

using namespace moetwin;
using Way = BesideProducts::Way;

TEST_CASE("which collectives go on beside products") {
  const BesideProducts pieces({4, false}), sums({1, true}), none({1, false});
  const auto gather = CollectiveKind::all_gather, scatter = CollectiveKind::reduce_scatter;
  CHECK(pieces.way_of(gather, "sequence parallel", Phase::forward) == Way::gather);
  CHECK(pieces.way_of(scatter, "sequence parallel", Phase::backward) == Way::reduction);
  CHECK(pieces.way_of(gather, "parameters", Phase::forward) == Way::none);
  CHECK(none.way_of(gather, "sequence parallel", Phase::forward) == Way::none);
  const auto reduce = CollectiveKind::all_reduce;
  CHECK(sums.way_of(reduce, "tensor parallel", Phase::backward) == Way::sum);
  CHECK(sums.way_of(reduce, "tensor parallel", Phase::forward) == Way::none);
  CHECK(sums.way_of(reduce, "gradients", Phase::backward) == Way::none);
}

TEST_CASE("a gather in four pieces: three go on beside the next product, once") {
  BesideProducts stream({4, false});
  // 8 s of gather: 6 may be hidden, beside three quarters of a product of 4 s.
  CHECK(stream.ended(Way::gather, 10, 10, 18) == 18);
  CHECK(stream.product(4) == Approx(3));
  CHECK(stream.product(4) == 0);
  // A long product hides all it may.
  stream.ended(Way::gather, 30, 30, 38);
  CHECK(stream.product(100) == Approx(6));
}

TEST_CASE("a reduction begins with the first piece of the product that makes it") {
  BesideProducts stream({4, false});
  stream.product(8);  // ends at 20, its first piece at 14
  CHECK(stream.ahead(Way::reduction) == Approx(6));
  // 4 s beside it, from 14 to 18: the last piece still follows the product.
  CHECK(stream.ended(Way::reduction, 20, 14, 18) == Approx(21));
  // What the first one took is no room for a second: 3 of 6 s are left.
  CHECK(stream.ahead(Way::reduction) == Approx(3));
  // 40 s beside 6: all but what began early.
  stream.product(8);
  CHECK(stream.ended(Way::reduction, 20, 14, 54) == Approx(54));
}

TEST_CASE("a sum goes on beside all of a product that does not make it") {
  BesideProducts stream({1, true});
  stream.product(8);
  CHECK(stream.ahead(Way::sum) == Approx(8));
  CHECK(stream.ended(Way::sum, 20, 12, 17) == Approx(20));
  CHECK(stream.ahead(Way::sum) == Approx(3));
}
