#include <catch2/catch.hpp>

#include "core/base/error.h"
#include "core/moe/routing_trace.h"
#include "core/moe/workload.h"
#include "tests/support/temporary_directory.h"

using namespace moetwin;
using namespace moetwin::test;
using Catch::Contains;

namespace {

using Counts = std::vector<int64_t>;

Counts replay(const RoutingTrace& trace, int64_t step, int64_t layer, int64_t source,
              int64_t sources, int64_t tokens, int64_t top_k, int64_t experts) {
  RoutingConfig routing;
  routing.source = "trace";
  return scripted_counts(routing, 1, step, layer, source, sources, tokens, top_k, experts, 1,
                         &trace);
}

std::string message_of(const TemporaryDirectory& dir, const std::string& name,
                       const std::string& bytes, int64_t experts) {
  try {
    RoutingTrace({dir.write(name, bytes)}, experts);
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::configuration);
    return error.what();
  }
  return "nothing was refused";
}

const char* const kTwoSteps =
    "step,layer,rank,expert,assigned,kept\n"
    "7,1,all,0,9,9\n7,1,all,1,3,3\n7,1,all,2,0,0\n"
    "7,1,0,0,5,5\n7,1,0,1,1,1\n7,1,0,2,0,0\n"
    "7,1,4,0,4,4\n7,1,4,1,2,2\n7,1,4,2,0,0\n"
    "9,1,all,0,0,0\n9,1,all,1,6,6\n9,1,all,2,6,6\n";

}  // namespace

TEST_CASE("our routing.csv: each source its own, else the shares of the total; steps come round") {
  const TemporaryDirectory dir;
  const RoutingTrace trace({dir.write("routing.csv", kTwoSteps)}, 3);
  CHECK(trace.steps() == 2);
  // The same sizes give the very counts of ranks 0 and 4.
  CHECK(replay(trace, 1, 1, 0, 2, 6, 1, 3) == Counts{5, 1, 0});
  CHECK(replay(trace, 1, 1, 1, 2, 6, 1, 3) == Counts{4, 2, 0});
  CHECK(replay(trace, 3, 1, 1, 2, 6, 1, 3) == Counts{4, 2, 0});
  // 8 tokens of one source: 9 : 3 of 8.
  CHECK(replay(trace, 1, 1, 0, 1, 8, 1, 3) == Counts{6, 2, 0});
  // Step 9 has totals only.
  CHECK(replay(trace, 2, 1, 1, 2, 6, 1, 3) == Counts{0, 3, 3});
  // Two choices a token: 9 : 3 of 8 would be 6 : 2 with only 4 tokens; expert 0 is full at 4, the
  // other 4 choices go to expert 1, also full, none is left for expert 2.
  CHECK(replay(trace, 1, 1, 0, 1, 4, 2, 3) == Counts{4, 4, 0});
}

TEST_CASE("Megatron's router trace counts indices; its sources are its ranks") {
  const TemporaryDirectory dir;
  dir.write("router_trace_rank0.jsonl",
            "{\"step\":0,\"stage\":\"pre_dispatch\",\"block\":\"decoder\",\"layer\":3,\"rank\":0,"
            "\"num_tokens\":2,\"topk\":2,\"top_indices\":[[0,2],[2,1]]}\n"
            "{\"step\":0,\"block\":\"mtp\",\"mtp_idx\":0,\"layer\":3,\"rank\":0,\"topk\":2,"
            "\"top_indices\":[[5,6]]}\n");
  dir.write("router_trace_rank1.jsonl",
            "{\"step\":0,\"stage\":\"pre_dispatch\",\"block\":\"decoder\",\"layer\":3,\"rank\":1,"
            "\"num_tokens\":2,\"topk\":2,\"top_indices\":[[0,1],[0,1]]}\n");
  Scenario scenario;
  scenario.path = dir / "s.json";
  scenario.model_config.moe_layer_config.num_experts = 4;
  scenario.routing.source = "W10";
  scenario.routing.trace_file = "router_trace_rank*.jsonl";
  const auto trace = load_trace(scenario);
  REQUIRE(trace);
  CHECK(replay(*trace, 1, 3, 0, 2, 2, 2, 4) == Counts{1, 1, 2, 0});
  CHECK(replay(*trace, 1, 3, 1, 2, 2, 2, 4) == Counts{2, 2, 0, 0});
  scenario.routing.source = "uniform";
  CHECK_FALSE(load_trace(scenario));
}

TEST_CASE("Megatron's tokens per expert: local experts take their place by the rank in the name") {
  const TemporaryDirectory dir;
  // Four experts, two a rank: ranks 0 and 2 hold 0 and 1, ranks 1 and 3 hold 2 and 3.
  const char* lines[] = {"[[1,2],[3,4]]", "[[1,0],[0,1]]", "[[0,1]]", "[[2,2]]"};
  std::vector<std::string> files;
  for (int r = 0; r < 4; ++r)
    files.push_back(dir.write("rank" + std::to_string(r) + ".jsonl",
                              "{\"iter\":100,\"block\":\"decoder\",\"layer\":3,\"tpe\":" +
                                  std::string(lines[r]) + "}\n"));
  const RoutingTrace trace(files, 4);
  CHECK(trace.shares(1, 3, 0, 1) == std::vector<double>{4, 7, 3, 3});
}

TEST_CASE("a broken trace is refused with its line", "[P213]") {
  const TemporaryDirectory dir;
  CHECK_THAT(message_of(dir, "a.csv", "step,layer\n1,2\n", 2), Contains("a.csv:1: the header"));
  const std::string header = "step,layer,rank,expert,assigned,kept\n";
  CHECK_THAT(message_of(dir, "b.csv", header + "1,0,all,0,5,5\n1,0,all,x,5,5\n", 2),
             Contains("b.csv:3: field 4"));
  CHECK_THAT(message_of(dir, "c.csv", header + "1,0,all\n", 2), Contains("c.csv:2: field 3"));
  CHECK_THAT(message_of(dir, "d.csv", header + "1,0,all,0,-5,5\n", 2),
             Contains("d.csv:2: field 5"));
  CHECK_THAT(message_of(dir, "e.csv", header, 2), Contains("holds no counts"));
  CHECK_THAT(message_of(dir, "f.csv", header + "1,0,all,2,5,5\n", 2),
             Contains("3 experts") && Contains("num_experts is 2"));
  CHECK_THAT(message_of(dir, "g.jsonl", "{\"step\":0}\n", 2), Contains("g.jsonl:1: needs"));
  CHECK_THAT(message_of(dir, "h.jsonl", "{\n", 2), Contains("h.jsonl:1: is not a JSON object"));
  const RoutingTrace trace({dir.write("routing.csv", kTwoSteps)}, 3);
  CHECK_THROWS_WITH(trace.shares(1, 2, 0, 1), Contains("no layer 2") && Contains("it has 1"));
}
