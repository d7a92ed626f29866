// The table of collectives: who talks to whom, how often, how fast.

#include <catch2/catch.hpp>
#include <cmath>

#include "core/record/collectives.h"

using namespace moetwin;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

Traffic reduced(int64_t calls, int64_t bytes, double seconds) {
  return {"all_reduce", "gradients", "dense_dp", "ring, Simple", 4,
          calls,        bytes,       bytes / 2,  seconds};
}

}  // namespace

TEST_CASE("collectives: means of a step and of the ranks that take part", "[P184][P194][P203]") {
  // Two steps; two ranks reduce in each, one of them exchanges in the first.
  CollectiveTable table;
  for (int step = 0; step < 2; ++step) {
    CollectiveTable of_step;
    add_collective(of_step, "all_reduce", reduced(3, 3000, 0.002));
    add_collective(of_step, "all_reduce", reduced(3, 5000, 0.002));
    if (step == 0)
      add_collective(of_step, "all_to_all",
                     {"all_to_all_v", "dispatch", "ep", "pairs, LL", 2, 1, 600, 0, 0.001});
    // Nothing is sent by a barrier, nor by who receives.
    add_collective(of_step, "all_reduce", reduced(3, 0, 0.002));
    add_collective(of_step, "barrier", {"barrier", "end", "world", "tree, LL", 8, 1, 0, 0, 0.1});
    add_collectives(table, of_step);
  }
  const std::vector<CollectiveLine> lines = collective_lines(table, 2);
  REQUIRE(lines.size() == 2);
  const CollectiveLine& reduce = lines[0];  // most time first
  CHECK(reduce.kind == "all_reduce");
  CHECK(reduce.members == 4);
  CHECK(reduce.ranks == 2);
  CHECK(reduce.calls == 3);
  CHECK(reduce.bytes == 4000);
  CHECK(reduce.off_node == 2000);
  CHECK(reduce.seconds == Approx(0.002));
  CHECK(reduce.bus_bandwidth() == Approx(4000 / 0.002));
  CHECK(lines[1].ranks == 0.5);
  CHECK(lines[1].bytes == 600);
  const std::vector<std::string> text = collective_table_lines(lines, 1);
  REQUIRE(text.size() == 4);
  CHECK_THAT(text[2], StartsWith("  all-reduce") && Contains("gradients") &&
                          Contains("dense_dp of 4") && Contains("ring, Simple"));
  CHECK(text[3] == "  1 more");
  CHECK(collective_table_lines({}, 1).empty());
}

TEST_CASE("collectives: a line without a time stands behind those with one") {
  CollectiveTable table;
  add_collective(table, "a", {"a", "", "", "", 2, 1, 1, 0, 3});
  add_collective(table, "b", {"b", "", "", "", 2, 1, 2, 0, 0});
  add_collective(table, "c", {"c", "", "", "", 2, 1, 3, 0, 1});
  std::string order;
  for (const CollectiveLine& line : collective_lines(table, 1)) order += line.kind;
  CHECK(order == "acb");
}

TEST_CASE("collectives: what a machine does not tell is left out") {
  CollectiveTable table;
  add_collective(table, "all_gather", {"all_gather", "parameters", "dense_dp", "", 4, 1, 10});
  add_collective(table, "all_reduce", {"all_reduce", "gradients", "dense_dp", "", 4, 1, 20});
  const std::vector<CollectiveLine> lines = collective_lines(table, 1);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].kind == "all_reduce");  // most bytes first
  CHECK(std::isnan(lines[0].seconds));
  CHECK(std::isnan(lines[0].bus_bandwidth()));
  for (const std::string& line : collective_table_lines(lines, 6)) {
    CHECK_THAT(line, !Contains("nan") && !Contains("GB/s") && !Contains("algorithm"));
  }
}
