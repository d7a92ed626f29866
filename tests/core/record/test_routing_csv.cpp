#include <catch2/catch.hpp>

#include "core/record/routing_csv.h"

using namespace moetwin;

TEST_CASE("routing.csv lines") {
  LayerStep layer;
  layer.layer = 3;
  layer.counts = {5, 0};
  CHECK(routing_csv_rank(7, 2, layer) == "7,3,2,0,5,5\n7,3,2,1,0,0\n");
  layer.kept = {4, 0};
  CHECK(routing_csv_rank(7, 2, layer) == "7,3,2,0,5,4\n7,3,2,1,0,0\n");
  LayerRow row;
  row.layer = 3, row.counts = {9, 1}, row.kept = {8, 1};
  CHECK(routing_csv_totals(7, row) == "7,3,all,0,9,8\n7,3,all,1,1,1\n");
}

TEST_CASE("rank rows: all up to the limit, then every n-th step, or the ranks asked for") {
  const RoutingVolume all{};
  CHECK(all.rank_rows(1, 0, 100000));
  CHECK(all.rank_rows(2, 0, 100000));
  CHECK_FALSE(all.rank_rows(1, 0, 100001));
  CHECK(all.rank_rows(2, 0, 100001));
  CHECK_FALSE(all.rank_rows(3, 0, 200000));
  CHECK(all.rank_rows(3, 0, 200001));  // every third step: 3, 6, 9
  CHECK_FALSE(all.rank_rows(4, 0, 200001));
  const RoutingVolume some{{1, 5}};
  CHECK(some.rank_rows(2, 5, 1000000));
  CHECK_FALSE(some.rank_rows(1, 0, 10));
}
