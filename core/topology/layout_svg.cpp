#include "core/topology/layout_svg.h"

#include <algorithm>
#include <cmath>

#include "core/topology/layout_plan.h"
#include "core/topology/svg.h"

namespace moetwin {
namespace {

constexpr double kCellWidth = 104, kCellHeight = 50;
constexpr double kMargin = 28, kTitleHeight = 72, kNodePad = 14, kNodeLabel = 20;
const char* const kStyle = R"(<style>
text { font-family: "DejaVu Sans", "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2933; }
.title { font-size: 19px; font-weight: bold; }
.sub { font-size: 12.5px; fill: #52606d; }
.rank { font-size: 13px; font-weight: bold; text-anchor: middle; }
.own { font-size: 11px; fill: #3e4c59; text-anchor: middle; }
.tag { font-size: 9.5px; fill: #7b8794; }
.node { font-size: 11px; fill: #7b8794; text-anchor: end; paint-order: stroke; stroke: #f5f7fa; stroke-width: 5; }
.skip { font-size: 12px; fill: #7b8794; text-anchor: middle; }
.box { fill: #f5f7fa; stroke: #cbd2d9; stroke-width: 1.2; }
.a2a { fill: none; stroke: #1d6fd1; stroke-width: 2.6; stroke-linecap: round; }
.arc { fill: none; stroke: #1d6fd1; stroke-width: 1.3; stroke-opacity: 0.55; }
.dp { fill: none; stroke: #f08c00; stroke-width: 2; stroke-dasharray: 6 4; }
.tp { stroke: #2f9e44; stroke-width: 5; }
.pp { fill: none; stroke: #868e96; stroke-width: 1.6; }
</style>
)";

class Painter {
 public:
  Painter(const Grid& grid, const ModelConfig& model, int64_t gpus_per_node)
      : grid_(grid),
        model_(model),
        gpus_per_node_(gpus_per_node),
        plan_(plan_layout(grid, gpus_per_node)) {
    place_columns();
    place_rows();
  }

  std::string paint(const std::string& name) {
    for (const NodeBox& box : plan_.nodes) node_box(box);
    for (size_t stage = 0; stage < plan_.stages.shown.size(); ++stage) {
      replica_edges(stage);
      all_to_all_edges(stage);
      cells(stage);
      if (plan_.stages.shown.size() > 1) stage_label(stage);
    }
    for (const NodeBox& box : plan_.nodes) node_label(box);
    skipped_labels();
    titles(name);
    const double bottom = legend(top_.back() + kNodePad + 34 + stage_height_ - first_row_offset());
    return svg_.document(
        std::max(right_ + kMargin, width_needed_), bottom + kMargin, name + ": layout of ranks",
        std::string(kStyle) + "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
  }

 private:
  // Replica edges that go over cells need room above them.
  double edges_above() const { return grid_.etp() > 1 && grid_.edp() > 1 ? 18 : 0; }
  double first_row_offset() const { return kNodePad + kNodeLabel + edges_above(); }

  // Room to the left of a column for the curved edges of its all-to-all.
  double arc_room() const {
    const auto rows = static_cast<double>(plan_.rows.shown.size());
    return rows < 3 ? 0 : std::min(62.0, 20 + 6 * (rows - 2));
  }

  void place_columns() {
    const bool staged = plan_.stages.shown.size() > 1;
    double x = kMargin + (staged ? 96 : 0) + kNodePad + arc_room();
    for (size_t column = 0; column < plan_.columns.shown.size(); ++column) {
      if (column > 0) {
        x += 40 + arc_room();
        if (new_node_between(column)) x += 2 * kNodePad;
        if (plan_.columns.skipped > 0 && column == plan_.columns.after) x += 84;
      }
      left_.push_back(x);
      x += static_cast<double>(grid_.etp()) * (kCellWidth + 20 + sub_room()) - 20 - sub_room();
    }
    right_ = x + kNodePad;
  }

  // Columns of one expert-TP group need room for their curved edges too.
  double sub_room() const { return arc_room(); }

  bool new_node_between(size_t column) const {
    return std::any_of(plan_.nodes.begin(), plan_.nodes.end(),
                       [&](const NodeBox& box) { return box.first_column == column; });
  }

  void place_rows() {
    double y = 0;
    for (size_t row = 0; row < plan_.rows.shown.size(); ++row) {
      if (row > 0) {
        y += kCellHeight + 26 + edges_above();
        if (plan_.break_above[row]) y += 2 * kNodePad + kNodeLabel - 12;
        if (plan_.rows.skipped > 0 && row == plan_.rows.after) y += 34;
      }
      row_.push_back(y);
    }
    stage_height_ = y + kCellHeight + first_row_offset() + kNodePad;
    double top = kTitleHeight + kMargin + first_row_offset();
    for (size_t stage = 0; stage < plan_.stages.shown.size(); ++stage) {
      if (stage > 0) top += stage_height_ + 40;
      top_.push_back(top);
    }
  }

  double x_of(size_t column, int64_t etp) const {
    return left_[column] + static_cast<double>(etp) * (kCellWidth + 20 + sub_room());
  }
  double y_of(size_t stage, size_t row) const { return top_[stage] + row_[row]; }

  void node_box(const NodeBox& box) {
    const double x = x_of(box.first_column, 0) - kNodePad - arc_room();
    const double end = x_of(box.last_column, grid_.etp() - 1) + kCellWidth + kNodePad;
    const double y = y_of(box.stage, box.first_row) - first_row_offset() + 6;
    const double bottom = y_of(box.stage, box.last_row) + kCellHeight + kNodePad;
    svg_.rect(x, y, end - x, bottom - y, 10, "class=\"box\"");
  }

  // Drawn after the edges that may pass behind it.
  void node_label(const NodeBox& box) {
    const double end = x_of(box.last_column, grid_.etp() - 1) + kCellWidth + kNodePad;
    const double y = y_of(box.stage, box.first_row) - first_row_offset() + 6;
    const int64_t on_node = std::min(gpus_per_node_, grid_.world() - box.node * gpus_per_node_);
    svg_.text(end - 10, y + 16,
              fmt::format("node {}{}", box.node,
                          box.whole ? fmt::format(" · {} GPU{}", on_node, on_node == 1 ? "" : "s")
                                    : " (part)"),
              "class=\"node\"");
  }

  void all_to_all_edges(size_t stage) {
    const auto& rows = plan_.rows.shown;
    for (size_t column = 0; column < plan_.columns.shown.size(); ++column)
      for (int64_t etp = 0; etp < grid_.etp(); ++etp) {
        const double x = x_of(column, etp), middle = x + kCellWidth / 2;
        for (size_t a = 0; a < rows.size(); ++a)
          for (size_t b = a + 1; b < rows.size(); ++b) {
            const double from = y_of(stage, a), to = y_of(stage, b);
            if (b == a + 1) {
              svg_.line(middle, from + kCellHeight, middle, to, "class=\"a2a\"");
              continue;
            }
            const double share = static_cast<double>(b - a) / static_cast<double>(rows.size() - 1);
            // A cubic reaches three quarters of its handles.
            const double handle = arc_room() * std::pow(share, 0.7) / 0.75 * 0.92;
            const double y1 = from + kCellHeight / 2 - 6, y2 = to + kCellHeight / 2 - 6;
            svg_.path(fmt::format("M{:g},{:g} C{:g},{:g} {:g},{:g} {:g},{:g}", x, y1, x - handle,
                                  y1, x - handle, y2, x, y2),
                      rows.size() > 8 ? "class=\"arc\" style=\"stroke-width:1;stroke-opacity:0.3\""
                                      : "class=\"arc\"");
          }
      }
  }

  void replica_edges(size_t stage) {
    for (size_t column = 0; column + 1 < plan_.columns.shown.size(); ++column)
      for (size_t row = 0; row < plan_.rows.shown.size(); ++row)
        for (int64_t etp = 0; etp < grid_.etp(); ++etp) {
          const double y = y_of(stage, row), x1 = x_of(column, etp), x2 = x_of(column + 1, etp);
          if (grid_.etp() == 1) {
            svg_.line(x1 + kCellWidth, y + kCellHeight / 2 + 8, x2, y + kCellHeight / 2 + 8,
                      "class=\"dp\"");
          } else {
            // Replicas are not neighbours here: go over the cells between them.
            const double up = y - 12 - 7 * static_cast<double>(std::min<int64_t>(etp, 3));
            const double a = x1 + kCellWidth / 2 + 14, b = x2 + kCellWidth / 2 - 14;
            svg_.path(
                fmt::format("M{:g},{:g} C{:g},{:g} {:g},{:g} {:g},{:g} L{:g},{:g} C{:g},{:g} "
                            "{:g},{:g} {:g},{:g}",
                            a, y, a, up, a + 4, up, a + 16, up, b - 16, up, b - 4, up, b, up, b, y),
                "class=\"dp\"");
          }
        }
  }

  void cells(size_t stage) {
    for (size_t column = 0; column < plan_.columns.shown.size(); ++column)
      for (size_t row = 0; row < plan_.rows.shown.size(); ++row)
        for (int64_t etp = 0; etp < grid_.etp(); ++etp) cell(stage, column, row, etp);
  }

  void cell(size_t stage, size_t column, size_t row, int64_t etp) {
    const int64_t ep = plan_.rows.shown[row];
    const int64_t rank =
        grid_.rank_of_expert_grid(plan_.stages.shown[stage], plan_.columns.shown[column], ep, etp);
    const double x = x_of(column, etp), y = y_of(stage, row), middle = x + kCellWidth / 2;
    if (etp > 0)
      svg_.line(x_of(column, etp - 1) + kCellWidth, y + kCellHeight / 2, x, y + kCellHeight / 2,
                "class=\"tp\"");
    // One hue for each expert column: copies of the same experts look the same.
    const double hue = std::fmod(205 + 360.0 * static_cast<double>(grid_.expert_column(ep)) /
                                           static_cast<double>(grid_.expert_sharding()),
                                 360);
    svg_.rect(x, y, kCellWidth, kCellHeight, 8,
              fmt::format("fill=\"{}\" stroke=\"{}\" stroke-width=\"1.4\"", color(hue, 0.62, 0.91),
                          color(hue, 0.42, 0.55)));
    const std::string experts = experts_label(grid_, ep), width = width_label(grid_, model_, ep);
    const int lines = 1 + !experts.empty() + !width.empty();
    double baseline = y + kCellHeight / 2 + (lines == 1 ? 5 : lines == 2 ? -3 : -9);
    svg_.text(middle, baseline, fmt::format("rank {}", rank), "class=\"rank\"");
    for (const std::string& line : {experts, width})
      if (!line.empty()) svg_.text(middle, baseline += lines == 2 ? 16 : 14, line, "class=\"own\"");
    if (grid_.tp() > 1)
      svg_.text(x + 6, y + 13, fmt::format("tp {}", grid_.coordinates(rank).tp), "class=\"tag\"");
    if (plan_.nodes.empty())
      svg_.text(x + kCellWidth - 6, y + 13, fmt::format("n{}", rank / gpus_per_node_),
                "class=\"tag\" style=\"text-anchor:end\"");
  }

  // "#rrggbb" of hue (degrees), saturation, lightness: not every renderer knows hsl().
  static std::string color(double hue, double saturation, double lightness) {
    const auto channel = [&](double n) {
      const double k = std::fmod(n + hue / 30, 12);
      const double a = saturation * std::min(lightness, 1 - lightness);
      return static_cast<int>(
          std::lround(255 * (lightness - a * std::max(-1.0, std::min({k - 3, 9 - k, 1.0})))));
    };
    return fmt::format("#{:02x}{:02x}{:02x}", channel(0), channel(8), channel(4));
  }

  void stage_label(size_t stage) {
    const int64_t pp = plan_.stages.shown[stage], layers = model_.num_layers / grid_.pp();
    const double y = top_[stage] + row_.back() / 2 + kCellHeight / 2;
    svg_.text(kMargin, y - 4, fmt::format("stage {}", pp),
              "class=\"rank\" style=\"text-anchor:start\"");
    svg_.text(kMargin, y + 12, fmt::format("layers {}–{}", pp * layers, (pp + 1) * layers - 1),
              "class=\"own\" style=\"text-anchor:start\"");
    if (stage == 0) return;
    const double x = kMargin + 30, from = top_[stage - 1] + row_.back() / 2 + kCellHeight / 2 + 22;
    const double to = y - 22;
    const double middle = (from + to) / 2;
    const bool gap = plan_.stages.skipped > 0 && stage == plan_.stages.after;
    svg_.path(fmt::format("M{:g},{:g} L{:g},{:g} M{:g},{:g} l5,-8 M{:g},{:g} l-5,-8", x, from, x,
                          to, x, to, x, to),
              "class=\"pp\"");
    if (gap)
      svg_.text(x + 8, middle, fmt::format("{} more", plan_.stages.skipped),
                "class=\"skip\" style=\"text-anchor:start\"");
  }

  void skipped_labels() {
    const ShownAxis& columns = plan_.columns;
    const ShownAxis& rows = plan_.rows;
    for (size_t stage = 0; stage < top_.size(); ++stage) {
      if (columns.skipped > 0) {
        const double x = (x_of(columns.after - 1, grid_.etp() - 1) + kCellWidth +
                          x_of(columns.after, 0) - arc_room()) /
                         2;
        const double y = top_[stage] + row_.back() / 2 + kCellHeight / 2;
        svg_.rect(x - 44, y - 24, 88, 40, 6, "fill=\"#ffffff\" fill-opacity=\"0.9\"");
        svg_.text(x, y - 7, fmt::format("· · ·"), "class=\"skip\"");
        svg_.text(x, y + 9,
                  fmt::format("{} more {}", columns.skipped, grid_.ep() > 1 ? "groups" : "ranks"),
                  "class=\"skip\"");
      }
      if (rows.skipped == 0) continue;
      for (size_t column = 0; column < columns.shown.size(); ++column) {
        const double x = (x_of(column, 0) + x_of(column, grid_.etp() - 1) + kCellWidth) / 2;
        const double y = (y_of(stage, rows.after - 1) + kCellHeight + y_of(stage, rows.after)) / 2;
        svg_.rect(x - 42, y - 11, 84, 20, 5, "fill=\"#ffffff\" fill-opacity=\"0.92\"");
        svg_.text(x, y + 4, fmt::format("{} more ranks", rows.skipped), "class=\"skip\"");
      }
    }
  }

  void titles(const std::string& name) {
    std::string product = fmt::format("{} = DP {} × EP {}", grid_.world(), grid_.edp(), grid_.ep());
    if (grid_.etp() > 1)
      product += fmt::format(" × {} {}", grid_.tp() == grid_.etp() ? "TP" : "ETP", grid_.etp());
    if (grid_.pp() > 1) product += fmt::format(" × PP {}", grid_.pp());
    svg_.text(kMargin, kMargin + 14, fmt::format("{}: world size {}", name, product),
              "class=\"title\"");
    const int64_t experts = model_.moe_layer_config.num_experts;
    std::string line = "No experts";
    if (experts > 0) {
      line =
          fmt::format("{} experts per MoE layer, {} on each rank", experts, grid_.local_experts());
      if (grid_.hidden_sharding() > 1)
        line += fmt::format(", split over {} rows of F {} → {}", grid_.hidden_sharding(),
                            model_.expert_width(), model_.expert_width() / grid_.hidden_sharding());
      line += grid_.edp() > 1 ? fmt::format(", {} copies", grid_.edp()) : ", one copy";
    }
    sub_title(kMargin + 35, line + ".");
    sub_title(kMargin + 52, grid_.ep() > 1
                                ? "Columns are EP groups; equal colours are equal experts."
                                : "Each rank is an EP group of its own.");
  }

  void sub_title(double y, const std::string& line) {
    svg_.text(kMargin, y, line, "class=\"sub\"");
    need_width(0, line);
  }

  void need_width(double indent, const std::string& line) {
    width_needed_ =
        std::max(width_needed_, 2 * kMargin + indent + 7.2 * static_cast<double>(line.size()));
  }

  static std::string groups_of(size_t groups, int64_t size) {
    return groups == 1 ? fmt::format("one group of {}", size)
                       : fmt::format("each of {} groups of {}", groups, size);
  }

  // Returns the lowest point drawn.
  double legend(double y) {
    const auto entry = [&](const char* css, const std::string& text) {
      if (*css) svg_.line(kMargin, y - 4, kMargin + 38, y - 4, fmt::format("class=\"{}\"", css));
      svg_.text(kMargin + 50, y, text, "class=\"sub\"");
      need_width(50, text);
      y += 21;
    };
    const auto within = [&](GroupKind kind, int64_t size) {
      return groups_of(grid_.groups(kind).size(), size);
    };
    if (grid_.ep() > 1)
      entry("a2a", fmt::format("EP: all-to-all of tokens within {} ranks",
                               within(GroupKind::ep, grid_.ep())));
    if (grid_.edp() > 1)
      entry("dp", fmt::format("DP: expert gradients are summed over {} replicas",
                              within(GroupKind::expert_dp, grid_.edp())));
    if (grid_.etp() > 1)
      entry("tp", fmt::format("TP: expert shards within {} ranks",
                              within(GroupKind::expert_tp, grid_.etp())));
    if (grid_.pp() > 1) entry("pp", fmt::format("PP: activations between {} stages", grid_.pp()));
    if (grid_.cp() > 1)
      entry("",
            fmt::format("CP: parts of sequences on {} ranks", within(GroupKind::cp, grid_.cp())));
    if (grid_.ddp() > 1)
      entry("", fmt::format("Dense gradients are summed over {} ranks (dense DP)",
                            within(GroupKind::dense_dp, grid_.ddp())));
    if (plan_.nodes.empty()) entry("", "n0, n1, ...: the node of a rank");
    return y - 21;
  }

  const Grid& grid_;
  const ModelConfig& model_;
  int64_t gpus_per_node_;
  LayoutPlan plan_;
  Svg svg_;
  std::vector<double> left_, row_, top_;
  double right_ = 0, stage_height_ = 0, width_needed_ = 0;
};

}  // namespace

std::string experts_label(const Grid& grid, int64_t ep_rank) {
  const int64_t n = grid.local_experts(), first = grid.first_expert(ep_rank);
  if (n == 0) return "";
  return n == 1 ? fmt::format("expert {}", first)
                : fmt::format("experts {}–{}", first, first + n - 1);
}

std::string width_label(const Grid& grid, const ModelConfig& model, int64_t ep_rank) {
  if (grid.hidden_sharding() == 1) return "";
  const int64_t width = model.expert_width() / grid.hidden_sharding();
  const int64_t begin = grid.hidden_row(ep_rank) * width;
  return fmt::format("F {}–{}", begin, begin + width - 1);
}

std::string layout_svg(const Grid& grid, const ModelConfig& model, const std::string& name,
                       int64_t gpus_per_node) {
  return Painter(grid, model, gpus_per_node).paint(name);
}

}  // namespace moetwin
