#include <catch2/catch.hpp>
#include <filesystem>

#include "analysis/result/run.h"
#include "core/base/error.h"
#include "tests/support/temporary_directory.h"

namespace moetwin {

using Catch::Contains;
using test::TemporaryDirectory;

TEST_CASE("a table has its numbers by column; empty fields are unknown") {
  const TemporaryDirectory d;
  const CsvTable table(d.write("steps.csv", "step,loss\n1,2.5\n2,\n3,1e-3\n"));
  CHECK(table.rows() == 3);
  CHECK(table.column("step") == std::vector<double>{1, 2, 3});
  CHECK(table.column("loss")[0] == 2.5);
  CHECK(std::isnan(table.column("loss")[1]));
  CHECK(table.column("loss")[2] == 1e-3);
  CHECK_THROWS_WITH(table.column("x"), Contains("no column x; it has step, loss"));
}

TEST_CASE("a broken table is refused with its line") {
  const TemporaryDirectory d;
  CHECK_THROWS_WITH(CsvTable(d.write("a.csv", "a,b\n1,2\n1\n")), Contains("a.csv:3: has 1 fields"));
  CHECK_THROWS_WITH(CsvTable(d.write("b.csv", "a,b\n1,x\n")), Contains("b.csv:2: b is no number"));
  CHECK_THROWS_WITH(CsvTable(d / "absent.csv"), Contains("absent.csv"));
}

TEST_CASE("routing.csv gives totals, what was kept, and the last step's sources") {
  const TemporaryDirectory d;
  const RoutingSeries s = read_routing_csv(d.write("routing.csv",
                                                   "step,layer,rank,expert,assigned,kept\n"
                                                   "1,1,all,0,6,5\n1,1,all,1,4,4\n"
                                                   "1,1,0,0,2,2\n1,1,0,1,3,3\n"
                                                   "1,1,1,0,4,3\n1,1,1,1,1,1\n"
                                                   "2,1,all,0,5,5\n2,1,all,1,5,5\n"
                                                   "1,3,all,0,9,9\n"));
  // (a file whose steps are out of order by layer is still read)
  REQUIRE(s.layers.size() == 2);
  const LayerSeries& layer = s.layers[0];
  CHECK(layer.layer == 1);
  CHECK(layer.steps == std::vector<int64_t>{1, 2});
  CHECK(layer.load == std::vector<double>{6, 4, 5, 5});
  CHECK(layer.kept == std::vector<double>{9, 10});
  CHECK(layer.sources.step == 1);
  CHECK(layer.sources.ranks == std::vector<int64_t>{0, 1});
  CHECK(layer.sources.assigned == std::vector<double>{2, 3, 4, 1});
}

TEST_CASE("ranks are summed where there is no total") {
  const TemporaryDirectory d;
  const RoutingSeries s =
      read_routing_csv(d.write("routing.csv",
                               "step,layer,rank,expert,assigned\n1,0,0,0,2\n1,0,0,1,3\n1,0,1,0,1\n"
                               "1,0,1,1,4\n"));
  CHECK(s.layers[0].load == std::vector<double>{3, 7});
  CHECK(std::isnan(s.layers[0].kept[0]));
}

TEST_CASE("broken routing files are refused with line and rule") {
  const TemporaryDirectory d;
  CHECK_THROWS_WITH(read_routing_csv(d.write("a.csv", "step,expert\n1,2\n")),
                    Contains("a.csv:1: the header must begin"));
  CHECK_THROWS_WITH(
      read_routing_csv(d.write("b.csv", "step,layer,rank,expert,assigned\n1,0,all,-1,4\n")),
      Contains("b.csv:2"));
  CHECK_THROWS_WITH(read_routing_csv(d.write("c.csv",
                                             "step,layer,rank,expert,assigned\n1,0,all,0,4\n"
                                             "2,0,all,0,4\n2,0,all,1,4\n")),
                    Contains("step 2, layer 0: has 2 experts, the steps before 1"));
}

TEST_CASE("the probe joins the layer of its number") {
  const TemporaryDirectory d;
  RoutingSeries s = read_routing_csv(
      d.write("routing.csv", "step,layer,rank,expert,assigned\n1,3,all,0,2\n1,3,all,1,3\n"));
  read_probe_csv(d.write("probe.csv",
                         "step,layer,churn,share_0,share_1,bias_0,bias_1\n"
                         "1,3,,0.5,0.5,0,0\n3,3,0.25,0.75,0.25,0.1,-0.1\n"),
                 s);
  REQUIRE(s.layers.size() == 1);
  const ProbeSeries& probe = s.layers[0].probe;
  CHECK(probe.steps == std::vector<int64_t>{1, 3});
  CHECK(std::isnan(probe.churn[0]));
  CHECK(probe.churn[1] == 0.25);
  CHECK(probe.share == std::vector<double>{0.5, 0.5, 0.75, 0.25});
  CHECK(probe.bias[2] == 0.1);
  CHECK(std::isnan(probe.harm[1]));
}

TEST_CASE("Megatron's router trace is counted by expert and rank") {
  const TemporaryDirectory d;
  std::filesystem::create_directory(d / "trace");
  d.write(
      "trace/router_trace_rank0.jsonl",
      R"({"step":0,"stage":"pre_dispatch","block":"decoder","layer":3,"rank":0,"num_tokens":2,"topk":2,"top_indices":[[0,2],[2,1]]}
{"step":1,"block":"decoder","layer":3,"rank":0,"top_indices":[[3,2]]}
{"step":1,"block":"mtp","layer":3,"rank":0,"top_indices":[[9,9]]}
)");
  d.write("trace/router_trace_rank1.jsonl",
          R"({"step":0,"block":"decoder","layer":3,"rank":1,"top_indices":[[2,3]]}
{"step":1,"block":"decoder","layer":3,"rank":1,"top_indices":[[2,3]]}
)");
  const Run run = read_run(d.path());
  REQUIRE(run.routing.layers.size() == 1);
  const LayerSeries& layer = run.routing.layers[0];
  CHECK(layer.experts == 4);
  CHECK(layer.steps == std::vector<int64_t>{0, 1});
  CHECK(layer.load == std::vector<double>{1, 1, 3, 1, 0, 0, 2, 2});
  CHECK(layer.sources.assigned == std::vector<double>{0, 0, 1, 1, 0, 0, 1, 1});
}

TEST_CASE("Megatron's tokens per expert are put where the rank's experts are") {
  const TemporaryDirectory d;
  const std::string line = R"({"iter":100,"block":"decoder","layer":0,"tpe":[[1,2],[10,20]]})";
  std::filesystem::create_directory(d / "tokens_per_expert");
  for (int rank = 0; rank < 4; ++rank)
    d.write("tokens_per_expert/rank" + std::to_string(rank) + ".jsonl", line + "\n");
  // Eight experts over four ranks, or four over two with two copies.
  CHECK(read_run(d.path()).routing.layers[0].load ==
        std::vector<double>{11, 22, 11, 22, 11, 22, 11, 22});
  CHECK(read_run(d.path(), 4).routing.layers[0].load == std::vector<double>{22, 44, 22, 44});
  CHECK_THROWS_WITH(read_run(d.path(), 3), Contains("does not fit 3"));
}

TEST_CASE("a directory without results is refused") {
  const TemporaryDirectory d;
  CHECK_THROWS_WITH(read_run(d.path()), Contains("holds no report.json"));
  CHECK_THROWS_WITH(read_run(d / "absent"), Contains("does not exist"));
  d.write("report.json", "{\"schema\": \"other/1\"}");
  CHECK_THROWS_WITH(read_run(d.path()), Contains("schema is \"other/1\""));
}

}  // namespace moetwin
