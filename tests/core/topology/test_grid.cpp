#include <catch2/catch.hpp>
#include <set>

#include "core/topology/grid.h"
#include "tests/core/topology/sizes_of.h"

using namespace moetwin;

namespace {

using Members = std::vector<std::vector<int64_t>>;

Members members(const Grid& grid, GroupKind kind) {
  Members all;
  for (const Group& group : grid.groups(kind)) all.push_back(group.members());
  return all;
}

std::vector<int64_t> range(int64_t first, int64_t count, int64_t stride = 1) {
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < count; ++i) ranks.push_back(first + i * stride);
  return ranks;
}

}  // namespace

TEST_CASE("seed 001's picture: W=8, DP=4, EP=2") {
  const Grid grid(sizes_of({.world = 8, .dp = 4, .ep = 2}), 64, 16384);
  CHECK(members(grid, GroupKind::ep) == Members{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(members(grid, GroupKind::expert_dp) == Members{{0, 2, 4, 6}, {1, 3, 5, 7}});
  CHECK(members(grid, GroupKind::dense_dp) == Members{range(0, 8)});
  CHECK(members(grid, GroupKind::world) == Members{range(0, 8)});
  CHECK(grid.local_experts() == 32);
  CHECK(grid.first_expert(0) == 0);
  CHECK(grid.first_expert(1) == 32);
}

TEST_CASE("W=16, EP=2: eight EP groups, two expert-DP groups, one dense-DP group", "[P001]") {
  const Grid grid(sizes_of({.world = 16, .dp = 8, .ep = 2}), 64, 16384);
  CHECK(members(grid, GroupKind::ep) ==
        Members{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}});
  CHECK(members(grid, GroupKind::expert_dp) == Members{range(0, 8, 2), range(1, 8, 2)});
  CHECK(members(grid, GroupKind::dense_dp) == Members{range(0, 16)});
}

TEST_CASE("TP=2, EP=2, ETP=2 over 8 ranks", "[P003]") {
  const Grid grid(sizes_of({.world = 8, .dp = 2, .ep = 2, .tp = 2, .etp = 2}), 4, 64);
  CHECK(members(grid, GroupKind::tp) == Members{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(members(grid, GroupKind::ep) == Members{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  CHECK(members(grid, GroupKind::expert_dp) == Members{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  CHECK(members(grid, GroupKind::dense_dp) == Members{{0, 2, 4, 6}, {1, 3, 5, 7}});
}

TEST_CASE("expert tensor parallel size 1 makes EDP = DP x TP") {
  const Grid grid(sizes_of({.world = 8, .dp = 2, .ep = 2, .tp = 2, .etp = 1}), 4, 64);
  CHECK(grid.edp() == 4);
  CHECK(grid.ddp() == 4);
  CHECK(members(grid, GroupKind::tp) == Members{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(members(grid, GroupKind::ep) == Members{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(members(grid, GroupKind::expert_dp) == Members{{0, 2, 4, 6}, {1, 3, 5, 7}});
}

TEST_CASE("pipeline stages are contiguous; first and last share the embedding") {
  const Grid grid(sizes_of({.world = 12, .dp = 2, .ep = 2, .pp = 3}), 4, 64);
  CHECK(members(grid, GroupKind::pp) == Members{{0, 4, 8}, {1, 5, 9}, {2, 6, 10}, {3, 7, 11}});
  CHECK(members(grid, GroupKind::embedding) ==
        Members{{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4}, {5}, {6}, {7}});
  CHECK(members(grid, GroupKind::ep) == Members{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}});
  CHECK(members(grid, GroupKind::dense_dp) == Members{range(0, 4), range(4, 4), range(8, 4)});
}

TEST_CASE("folding lets EP be larger than the dense data parallel size", "[P011]") {
  // The report's 32 GPUs with EP 32 over a dense DP of 2; TP 16 stands where it had CP 16.
  DistributedConfig config = sizes_of({.world = 32, .dp = 1, .ep = 32, .tp = 16, .etp = 1});
  config.parallel_folding = true;
  config.dense_data_parallel_size = 2;
  const Grid grid(config, 64, 128);
  CHECK(grid.local_experts() == 2);
  CHECK(grid.edp() == 1);
  CHECK(grid.ddp() == 2);
  CHECK(members(grid, GroupKind::ep) == Members{range(0, 32)});
  CHECK(members(grid, GroupKind::tp) == Members{range(0, 16), range(16, 16)});
  // Alone in its expert-DP group: expert optimizer state is not sharded further.
  CHECK(grid.group(GroupKind::expert_dp, 17) == Group{17});
}

TEST_CASE("EP groups may be larger than TP x dense DP allows unfolded: EP 4 crosses TP 4") {
  DistributedConfig config = sizes_of({.world = 8, .dp = 1, .ep = 4, .tp = 4, .etp = 1});
  config.parallel_folding = true;
  const Grid grid(config, 8, 64);
  CHECK(grid.ddp() == 2);
  CHECK(grid.edp() == 2);
  CHECK(members(grid, GroupKind::ep) == Members{range(0, 4), range(4, 4)});
  CHECK(members(grid, GroupKind::expert_dp) == Members{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
}

TEST_CASE("two nodes of one GPU hold one EP group", "[P015]") {
  const Grid grid(sizes_of({.world = 2, .dp = 1, .ep = 2}), 4, 64);
  CHECK(members(grid, GroupKind::ep) == Members{{0, 1}});
  CHECK(grid.local_experts() == 2);
}

TEST_CASE("eight ranks, four experts: ranks 0 and 4 hold the same expert", "[P017]") {
  const Grid grid(sizes_of({.world = 8, .dp = 2, .ep = 4}), 4, 64);
  CHECK(members(grid, GroupKind::expert_dp) == Members{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  for (int64_t rank : {0, 4}) CHECK(grid.first_expert(grid.coordinates(rank).ep) == 0);
  CHECK(grid.local_experts() == 1);
}

TEST_CASE("more EP ranks than experts split the hidden width", "[P021]") {
  const Grid grid(sizes_of({.world = 4, .dp = 1, .ep = 4}), 2, 128);
  CHECK(grid.expert_sharding() == 2);
  CHECK(grid.hidden_sharding() == 2);
  CHECK(grid.local_experts() == 1);
  // Rank r owns expert column r % esd and hidden row r / esd (seed 004).
  const int64_t column[] = {0, 1, 0, 1}, row[] = {0, 0, 1, 1};
  for (int64_t r = 0; r < 4; ++r) {
    CHECK(grid.expert_column(r) == column[r]);
    CHECK(grid.hidden_row(r) == row[r]);
    CHECK(grid.first_expert(r) == column[r]);
  }
}

TEST_CASE("a group knows its members without storing them") {
  const Group grid_corner{.base = 3, .n0 = 2, .stride0 = 16, .n1 = 3, .stride1 = 2};
  CHECK(grid_corner.members() == std::vector<int64_t>{3, 5, 7, 19, 21, 23});
  for (int64_t i = 0; i < 6; ++i) CHECK(grid_corner.index_of(grid_corner.member(i)) == i);
  for (int64_t stranger : {0, 2, 4, 9, 11, 18, 20, 25, 35})
    CHECK(grid_corner.index_of(stranger) == -1);
  // The outer stride may be the smaller one: members then come out of order.
  const Group turned{.base = 0, .n0 = 2, .stride0 = 1, .n1 = 3, .stride1 = 4};
  CHECK(turned.members() == std::vector<int64_t>{0, 4, 8, 1, 5, 9});
  for (int64_t i = 0; i < 6; ++i) CHECK(turned.index_of(turned.member(i)) == i);
  CHECK(turned.index_of(2) == -1);
}

// Groups by their definition: the ranks that agree in every coordinate of the grid but one.
TEST_CASE("every layout: coordinates invert, groups have their size and partition the ranks",
          "[P006][P003]") {
  int64_t layouts = 0;
  for (int64_t world : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32})
    for (int64_t pp = 1; pp <= world; ++pp)
      for (int64_t tp = 1; tp <= world; ++tp)
        for (int64_t ep = 1; ep <= world; ++ep)
          for (int64_t etp = 1; etp <= world; ++etp) {
            if (world % (pp * tp) != 0 || world % (pp * ep * etp) != 0) continue;
            ++layouts;
            DistributedConfig config =
                sizes_of({.world = world, .dp = 1, .ep = ep, .tp = tp, .pp = pp, .etp = etp});
            config.parallel_folding = true;
            const Grid grid(config, 64 * ep, 64);
            const int64_t edp = world / (pp * ep * etp), ddp = world / (pp * tp);
            const std::vector<std::pair<GroupKind, int64_t>> sizes = {
                {GroupKind::tp, tp},         {GroupKind::ep, ep},
                {GroupKind::expert_tp, etp}, {GroupKind::expert_dp, edp},
                {GroupKind::dense_dp, ddp},  {GroupKind::pp, pp},
                {GroupKind::world, world},   {GroupKind::stage, ddp * tp}};
            bool good = true;
            for (int64_t rank = 0; rank < world; ++rank) {
              const Coordinates at = grid.coordinates(rank);
              good = good && grid.rank_of_expert_grid(at.pp, at.edp, at.ep, at.etp) == rank &&
                     grid.rank_of_dense_grid(at.pp, at.ddp, at.tp) == rank;
              for (const auto& [kind, size] : sizes) {
                const Group group = grid.group(kind, rank);
                good = good && group.size() == size && group.index_of(rank) >= 0 &&
                       group.member(group.index_of(rank)) == rank;
              }
            }
            for (const auto& [kind, size] : sizes) {
              std::set<int64_t> seen;
              int64_t count = 0;
              for (const Group& group : grid.groups(kind))
                for (int64_t rank : group.members()) {
                  seen.insert(rank), ++count;
                  // Equal groups seen from any member: every rank creates the same group.
                  good = good && grid.group(kind, rank) == group;
                }
              good = good && count == world && static_cast<int64_t>(seen.size()) == world;
            }
            // Two axes of one mesh share at most one rank.
            const GroupKind expert_axes[] = {GroupKind::ep, GroupKind::expert_tp,
                                             GroupKind::expert_dp, GroupKind::pp};
            const GroupKind dense_axes[] = {GroupKind::tp, GroupKind::dense_dp, GroupKind::pp};
            const auto cross = [&](const auto& axes) {
              for (GroupKind a : axes)
                for (GroupKind b : axes) {
                  if (a == b) continue;
                  for (int64_t rank : grid.group(a, 0).members())
                    if (rank != 0 && grid.group(b, 0).index_of(rank) >= 0) return false;
                }
              return true;
            };
            good = good && cross(expert_axes) && cross(dense_axes);
            INFO("W " << world << " PP " << pp << " TP " << tp << " EP " << ep << " ETP " << etp);
            REQUIRE(good);
          }
  CHECK(layouts > 500);
}

TEST_CASE("16,384 ranks cost nothing") {
  const Grid grid(sizes_of({.world = 16384, .dp = 256, .ep = 64}), 64, 64);
  CHECK(grid.groups(GroupKind::ep).size() == 256);
  CHECK(grid.group(GroupKind::dense_dp, 9000) == Group{.base = 0, .n1 = 16384, .stride1 = 1});
  CHECK(grid.group(GroupKind::expert_dp, 9000).member(255) == 9000 % 64 + 255 * 64);
}
