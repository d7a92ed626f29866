#include "analysis/export/tensorboard.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include "analysis/export/crc32c.h"
#include "analysis/stability/stability.h"
#include "core/record/output_file.h"
#include "core/record/routing_metrics.h"

namespace moetwin {

namespace {

template <class T>
std::string little_endian(T value) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

// Wire types of protobuf: 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes.
std::string key(int field, int wire) { return varint(static_cast<uint64_t>(field << 3 | wire)); }
std::string bytes_field(int field, const std::string& value) {
  return key(field, 2) + varint(value.size()) + value;
}
std::string varint_field(int field, uint64_t value) { return key(field, 0) + varint(value); }

/// Event: 1 double wall_time, 2 int64 step, 3 string file_version, 5 Summary.
std::string event_head(double wall_time, int64_t step) {
  return key(1, 1) + little_endian(wall_time) + varint_field(2, static_cast<uint64_t>(step));
}

uint32_t masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

}  // namespace

std::string event_record(const std::string& event) {
  const std::string length = little_endian(static_cast<uint64_t>(event.size()));
  return length + little_endian(masked(crc32c(length))) + event +
         little_endian(masked(crc32c(event)));
}

std::string version_event(double wall_time) {
  return key(1, 1) + little_endian(wall_time) + bytes_field(3, "brain.Event:2");
}

std::string scalar_event(double wall_time, int64_t step, const std::string& tag, double value) {
  // Summary: 1 repeated Value {1 tag, 2 float simple_value}.
  const std::string entry =
      bytes_field(1, tag) + key(2, 5) + little_endian(static_cast<float>(value));
  return event_head(wall_time, step) + bytes_field(5, bytes_field(1, entry));
}

std::string text_event(double wall_time, int64_t step, const std::string& tag,
                       const std::string& text) {
  // Value {1 tag, 8 TensorProto {1 dtype 7 = string, 2 shape {2 dim {1 size 1}}, 8 string_val},
  // 9 SummaryMetadata {1 PluginData {1 plugin_name}}}.
  const std::string shape = bytes_field(2, varint_field(1, 1));
  const std::string tensor = varint_field(1, 7) + bytes_field(2, shape) + bytes_field(8, text);
  const std::string metadata = bytes_field(1, bytes_field(1, "text"));
  const std::string entry = bytes_field(1, tag) + bytes_field(8, tensor) + bytes_field(9, metadata);
  return event_head(wall_time, step) + bytes_field(5, bytes_field(1, entry));
}

std::string tensorboard_events(const Run& run) {
  std::string file = event_record(version_event(0));
  double now = 0;
  std::map<int64_t, double> time_of;  // of a step's end
  if (run.steps.rows() > 0) {
    const std::vector<double>& step = run.steps.column("step");
    const std::vector<double> seconds = run.steps.column_or_nan("step_seconds");
    for (size_t i = 0; i < run.steps.rows(); ++i) {
      if (std::isfinite(seconds[i])) now += seconds[i];
      time_of[static_cast<int64_t>(step[i])] = now;
      for (const std::string& name : run.steps.names()) {
        const double value = run.steps.column(name)[i];
        if (name == "step" || !std::isfinite(value)) continue;
        file +=
            event_record(scalar_event(now, static_cast<int64_t>(step[i]), "steps/" + name, value));
      }
    }
  }
  for (const LayerSeries& layer : run.routing.layers) {
    const auto width = static_cast<size_t>(layer.experts);
    const std::string prefix = fmt::format("layer_{}/", layer.layer);
    for (size_t t = 0; t < layer.size(); ++t) {
      std::vector<int64_t> counts;
      for (size_t e = 0; e < width; ++e) counts.push_back(std::llround(layer.load[t * width + e]));
      int64_t sum = 0;
      for (int64_t n : counts) sum += n;
      const RoutingMetrics m = routing_metrics(counts, sum, {});
      const int64_t step = layer.steps[t];
      for (const auto& [name, value] : {std::pair{"load_cv", m.load_cv},
                                        {"imbalance_experts", m.imbalance_experts},
                                        {"entropy", m.entropy}})
        file += event_record(scalar_event(time_of[step], step, prefix + name, value));
    }
    for (size_t t = 0; t < layer.probe.size(); ++t) {
      if (!std::isfinite(layer.probe.churn[t])) continue;
      const int64_t step = layer.probe.steps[t];
      file +=
          event_record(scalar_event(time_of[step], step, prefix + "churn", layer.probe.churn[t]));
    }
  }
  const StabilityReport stability =
      analyse_stability(run.routing, loss_series(run), stability_options(run));
  std::string words;
  for (const Finding& f : stability.findings)
    words += fmt::format("**{}**{}: {}\n\n", f.kind,
                         f.layer >= 0 ? fmt::format(", layer {}", f.layer) : "", f.evidence);
  if (!words.empty())
    file += event_record(
        text_event(now, time_of.empty() ? 0 : time_of.rbegin()->first, "verdicts", words));
  return file;
}

std::string write_tensorboard(const Run& run, const std::string& directory) {
  make_directory(directory);
  const std::string path = directory + "/events.out.tfevents.0000000000.moetwin";
  OutputFile file(path);
  file.write(tensorboard_events(run));
  file.commit();
  return path;
}

}  // namespace moetwin
