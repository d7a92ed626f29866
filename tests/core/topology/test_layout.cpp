#include <catch2/catch.hpp>
#include <map>
#include <regex>
#include <set>

#include "core/topology/layout_plan.h"
#include "core/topology/layout_svg.h"
#include "tests/core/topology/sizes_of.h"

using namespace moetwin;

namespace {

struct Point {
  double x, y;
};

// Centre line of every rank's cell, by its label.
std::map<int64_t, Point> rank_places(const std::string& svg) {
  std::map<int64_t, Point> places;
  const std::regex label(
      "<text x=\"([0-9.]+)\" y=\"([0-9.]+)\" class=\"rank\">rank ([0-9]+)</text>");
  for (std::sregex_iterator it(svg.begin(), svg.end(), label), end; it != end; ++it)
    places[std::stoll((*it)[3])] = {std::stod((*it)[1]), std::stod((*it)[2])};
  return places;
}

// Pairs of ranks that straight edges of a class join: those whose cells hold the two ends, a cell
// being 104 x 50 around its label.
std::set<std::pair<int64_t, int64_t>> joined(const std::string& svg, const std::string& css) {
  std::set<std::pair<int64_t, int64_t>> pairs;
  const auto places = rank_places(svg);
  const auto at = [&](double x, double y) {
    for (const auto& [rank, place] : places)
      if (std::abs(x - place.x) <= 52 && std::abs(y - place.y) <= 34) return rank;
    return int64_t{-1};
  };
  const std::regex line(
      "<line x1=\"([0-9.]+)\" y1=\"([0-9.]+)\" x2=\"([0-9.]+)\" y2=\"([0-9.]+)\" class=\"" + css +
      "\"/>");
  for (std::sregex_iterator it(svg.begin(), svg.end(), line), end; it != end; ++it) {
    const double x1 = std::stod((*it)[1]), y1 = std::stod((*it)[2]);
    const double x2 = std::stod((*it)[3]), y2 = std::stod((*it)[4]);
    if (at(x1, y1) >= 0) pairs.insert({at(x1, y1), at(x2, y2)});
  }
  return pairs;
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

ModelConfig experts(int64_t n, int64_t width = 0) {
  ModelConfig model;
  model.moe_layer_config.num_experts = n;
  model.moe_layer_config.expert_hidden_size = width;
  return model;
}

std::string picture(const Sizes& sizes, const ModelConfig& model, int64_t gpus_per_node = 8) {
  const Grid grid(sizes_of(sizes), model.moe_layer_config.num_experts, model.expert_width());
  return layout_svg(grid, model, "test", gpus_per_node);
}

}  // namespace

TEST_CASE("seed 001's picture: EP joined down the columns, replicas across them") {
  const std::string svg = picture({.world = 8, .dp = 4, .ep = 2}, experts(64));
  CHECK(rank_places(svg).size() == 8);
  CHECK(joined(svg, "a2a") ==
        std::set<std::pair<int64_t, int64_t>>{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(joined(svg, "dp") ==
        std::set<std::pair<int64_t, int64_t>>{{0, 2}, {2, 4}, {4, 6}, {1, 3}, {3, 5}, {5, 7}});
  // Columns share x, rows share y.
  const auto places = rank_places(svg);
  for (int64_t rank = 0; rank < 8; ++rank) {
    CHECK(places.at(rank).x == places.at(rank / 2 * 2).x);
    CHECK(places.at(rank).y == places.at(rank % 2).y);
  }
  CHECK(count(svg, ">experts 0–31<") == 4);
  CHECK(count(svg, ">experts 32–63<") == 4);
  CHECK(count(svg, "node 0 · 8 GPUs") == 1);
  CHECK(count(svg, "class=\"box\"") == 1);
  CHECK(count(svg, "world size 8 = DP 4 × EP 2") == 1);
}

TEST_CASE("every pair of an EP group has an edge") {
  // Two groups of 8: 7 straight edges and 8 * 7 / 2 - 7 = 21 curved ones each.
  const std::string svg = picture({.world = 16, .dp = 2, .ep = 8}, experts(64));
  CHECK(joined(svg, "a2a").size() == 2 * 7);
  CHECK(count(svg, "class=\"arc\"") == 2 * 21);
  CHECK(joined(svg, "dp").size() == 8);
  CHECK(count(svg, "class=\"box\"") == 2);
}

TEST_CASE("hidden rows are named", "[P021]") {
  const std::string svg = picture({.world = 4, .ep = 4}, experts(2, 128));
  CHECK(count(svg, ">F 0–63<") == 2);
  CHECK(count(svg, ">F 64–127<") == 2);
  CHECK(count(svg, "F 128 → 64") == 1);
}

TEST_CASE("two nodes of one GPU are two boxes", "[P015]") {
  const std::string svg = picture({.world = 2, .ep = 2}, experts(4), 1);
  CHECK(count(svg, "node 0 · 1 GPU<") == 1);
  CHECK(count(svg, "node 1 · 1 GPU<") == 1);
  CHECK(joined(svg, "a2a") == std::set<std::pair<int64_t, int64_t>>{{0, 1}});
}

TEST_CASE("elements are balanced and text is escaped for every kind of layout") {
  const Sizes layouts[] = {{},
                           {.world = 8, .dp = 8},
                           {.world = 16, .dp = 2, .ep = 2, .tp = 2, .pp = 2},
                           {.world = 12, .dp = 4, .ep = 3},
                           {.world = 64, .dp = 64},
                           {.world = 64, .dp = 8, .ep = 8},
                           {.world = 1024, .dp = 16, .ep = 64},
                           {.world = 4096, .dp = 8, .ep = 16, .tp = 4, .pp = 8}};
  for (const Sizes& sizes : layouts)
    for (int64_t gpus_per_node : {1, 3, 8, 1000}) {
      ModelConfig model = experts(sizes.ep * 3);
      model.num_layers = 16;
      const Grid grid(sizes_of(sizes), model.moe_layer_config.num_experts, model.expert_width());
      const std::string svg = layout_svg(grid, model, "a<b&c", gpus_per_node);
      INFO("W " << sizes.world << ", " << gpus_per_node << " a node");
      CHECK(count(svg, "a&lt;b&amp;c") == 2);
      CHECK(count(svg, "<text") == count(svg, "</text>"));
      CHECK(count(svg, "<") == count(svg, ">"));
      CHECK(count(svg, "nan") == 0);
      CHECK(rank_places(svg).count(0) == 1);
      CHECK(rank_places(svg).count(sizes.world - 1) == 1);
      CHECK(svg.size() < 300000);
    }
}

TEST_CASE("long axes keep their ends and say what is left out") {
  const ShownAxis axis = shown_axis(10, 6, 3, 2);
  CHECK(axis.shown == std::vector<int64_t>{0, 1, 2, 8, 9});
  CHECK(axis.skipped == 5);
  CHECK(axis.after == 3);
  CHECK(shown_axis(6, 6, 3, 2).skipped == 0);
  CHECK(shown_axis(6, 6, 3, 2).shown.size() == 6);
}

TEST_CASE("nodes that cut EP groups get one box per stretch") {
  // EP 3 on nodes of 4: ranks 0-3 are column 0 and the first of column 1.
  const LayoutPlan plan = plan_layout(Grid(sizes_of({.world = 6, .dp = 2, .ep = 3}), 3, 8), 4);
  REQUIRE(plan.nodes.size() == 3);
  CHECK(plan.nodes[0].node == 0);
  CHECK(plan.nodes[0].last_row == 2);
  CHECK_FALSE(plan.nodes[0].whole);
  CHECK(plan.nodes[1].node == 0);
  CHECK(plan.nodes[1].first_column == 1);
  CHECK(plan.nodes[1].last_row == 0);
  CHECK(plan.nodes[2].node == 1);
  CHECK(plan.nodes[2].first_row == 1);
  CHECK(plan.nodes[2].whole);
  CHECK(plan.break_above == std::vector<bool>{false, true, false});
}
