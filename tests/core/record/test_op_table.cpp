#include <catch2/catch.hpp>

#include "core/record/op_table.h"

using namespace moetwin;

namespace {

Interval interval(const char* name, double start, double end, Phase phase, int32_t stream,
                  const char* group = "") {
  Interval i;
  i.name = name, i.start = start, i.end = end, i.phase = phase, i.stream = stream, i.group = group;
  i.activity = group[0] ? Activity::all_to_all : Activity::compute;
  i.bytes = 8;
  return i;
}

/// 1 s of gemm forward and 2 s backward in two calls, 0.5 s of exchange for two groups; rank 1
/// takes a quarter longer for its forward gemm.
Profile profile(int64_t rank) {
  Profile p;
  p.intervals = {interval("gemm", 0, rank == 1 ? 1.25 : 1, Phase::forward, 0),
                 interval("gemm", 2, 3, Phase::backward, 0),
                 interval("gemm", 3, 4, Phase::backward, 0),
                 interval("all_to_all_v", 1, 1.25, Phase::forward, 1, "ep"),
                 interval("all_to_all_v", 4, 4.25, Phase::forward, 1, "other"),
                 interval("", 0, 9, Phase::other, -1)};
  return p;
}

OpTable table() {
  OpTableBuilder builder;
  for (const int64_t step : {3, 4}) {
    std::vector<RankOps> ranks;
    for (int64_t rank = 0; rank < 2; ++rank) ranks.push_back(rank_ops(profile(rank)));
    builder.add_step(step, ranks);
  }
  return builder.build();
}

}  // namespace

TEST_CASE("ops add up over calls, phases, streams, ranks and steps; the host's work is left out") {
  const OpTable t = table();
  CHECK(t.steps == std::vector<int64_t>{3, 4});
  CHECK(t.ranks == 2);
  // Each step: gemm 3 + 3.25 s on two ranks, the exchange 0.5 s on each.
  CHECK(t.device_seconds() == 2 * (6.25 + 1.0));
  REQUIRE(t.by_op.size() == 2);
  const OpRow& gemm = t.by_op[0];
  CHECK(gemm.key.name == "gemm");
  CHECK(gemm.sums.calls == 2 * 2 * 3);
  CHECK(gemm.sums.seconds == 12.5);
  CHECK(gemm.sums.bytes == 12 * 8);
  CHECK(gemm.most_seconds == 3.25);
  CHECK(gemm.most_rank == 1);
  CHECK(t.by_op[1].key.name == "all_to_all_v");
  CHECK(t.by_op[1].sums.seconds == 2.0);
  CHECK(t.by_op[1].most_rank == 0);  // equal: the lowest

  REQUIRE(t.rows.size() == 4);
  CHECK(t.rows[0].key.phase == Phase::backward);
  CHECK(t.rows[0].sums.seconds == 8);
  CHECK(t.rows[1].key.phase == Phase::forward);
  CHECK(t.rows[1].sums.seconds == 4.5);
  CHECK(t.rows[2].key.group == "ep");
  CHECK(t.rows[3].key.group == "other");
  CHECK(t.rows[3].sums.seconds == 1);
}

TEST_CASE("the table as CSV, as JSON and on a screen") {
  const OpTable t = table();
  const std::string csv = op_table_csv(t);
  CHECK(csv.substr(0, csv.find('\n')) ==
        "op,activity,phase,stream,group,calls,total_seconds,mean_seconds,share,bytes,"
        "most_seconds_of_a_rank_and_step,most_rank");
  CHECK(csv.find("\ngemm,compute,forward,0,,4,4.5,1.125,") != std::string::npos);
  CHECK(csv.find("\nall_to_all_v,all_to_all,forward,1,ep,4,1,0.25,") != std::string::npos);

  const Json::Value json = op_table_json(t);
  CHECK(json["device_seconds"] == 14.5);
  CHECK(json["steps"].size() == 2);
  REQUIRE(json["ops"].size() == 2);
  CHECK(json["ops"][0]["op"] == "gemm");
  CHECK(json["ops"][0]["share"].asDouble() == 12.5 / 14.5);
  CHECK(json["ops"][0]["mean_seconds"].asDouble() == 12.5 / 12);

  const std::vector<std::string> all = op_table_lines(t, 12);
  REQUIRE(all.size() == 4);
  CHECK(all[0] == "Ops by device time (steps 3-4, 2 ranks together: 14.50 s)");
  // 3.25 s of rank 1 against a mean of 3.125 s.
  CHECK(all[2].find("1.04 x mean, rank 1") != std::string::npos);
  const std::vector<std::string> first = op_table_lines(t, 1);
  REQUIRE(first.size() == 4);
  CHECK(first[3].find("1 more") != std::string::npos);
  CHECK(first[3].find("13.8 %") != std::string::npos);  // 2 of 14.5
  CHECK(op_table_lines(OpTable{}, 12).empty());
}
