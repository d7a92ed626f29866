#include "core/record/step_row.h"

#include <fmt/format.h>

#include <cmath>

namespace moetwin {

namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

std::string field(double value) { return std::isfinite(value) ? shortest(value) : ""; }

int64_t sent(const StepRow& row, const char* kind) {
  const auto found = row.traffic.find(kind);
  return found == row.traffic.end() ? 0 : found->second.bytes;
}

/// Names and values together, so that a column cannot lose its heading.
Fields fields_of(const StepRow& row) {
  Fields fields;
  const auto number = [&](const char* name, double value) {
    fields.emplace_back(name, field(value));
  };
  const auto count = [&](const char* name, int64_t value) {
    fields.emplace_back(name, std::to_string(value));
  };
  const bool moe = !row.layers.empty();
  const double unknown = std::nan("");
  count("step", row.step);
  number("loss", row.loss);
  number("aux_loss", moe ? row.aux : unknown);
  number("z_loss", moe ? row.z : unknown);
  number("importance_cv2", moe ? row.importance : unknown);
  number("load_variance", moe ? row.load_variance : unknown);
  number("grad_norm", row.grad_norm);
  number("learning_rate", row.learning_rate);
  number("loss_scale", row.loss_scale);
  count("skipped", row.skipped);
  number("step_seconds", row.seconds());
  number("tokens_per_second", row.tokens_per_second());
  for (int part = 0; part < kParts; ++part)
    number((std::string(part_name(static_cast<Part>(part))) + "_seconds").c_str(),
           row.parts.seconds[static_cast<size_t>(part)]);
  number("forward_seconds", row.parts.forward);
  number("backward_seconds", row.parts.backward);
  number("recompute_seconds", row.parts.recompute);
  number("optimizer_seconds", row.parts.optimizer);
  number("all_to_all_hidden_seconds", row.parts.all_to_all_hidden);
  number("other_communication_hidden_seconds", row.parts.other_communication_hidden);
  number("load_cv", moe ? row.routing.load_cv : unknown);
  number("imbalance_experts", moe ? row.routing.imbalance_experts : unknown);
  number("imbalance_ranks", moe ? row.routing.imbalance_ranks : unknown);
  number("entropy", moe ? row.routing.entropy : unknown);
  number("dead_share", moe ? row.routing.dead_share : unknown);
  number("dropped_share", moe ? row.routing.dropped_share : unknown);
  count("all_to_all_bytes", sent(row, "all_to_all"));
  count("all_reduce_bytes", sent(row, "all_reduce"));
  count("reduce_scatter_bytes", sent(row, "reduce_scatter"));
  count("all_gather_bytes", sent(row, "all_gather"));
  count("host_syncs", row.host_syncs);
  count("peak_memory_bytes", row.peak_memory_bytes);
  return fields;
}

std::string line(const Fields& fields, std::string std::pair<std::string, std::string>::*which) {
  std::string text;
  for (const auto& f : fields) text += f.*which + ",";
  text.back() = '\n';
  return text;
}

}  // namespace

std::string shortest(double value) { return fmt::format("{}", value); }

std::string steps_csv_header() {
  return line(fields_of(StepRow{}), &std::pair<std::string, std::string>::first);
}

std::string steps_csv_line(const StepRow& row) {
  return line(fields_of(row), &std::pair<std::string, std::string>::second);
}

}  // namespace moetwin
