#include "core/record/timeline.h"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/record/json_text.h"

namespace moetwin {

namespace {

/// Microseconds to a thousandth: what the viewers resolve.
double microseconds(double seconds) { return std::round(seconds * 1e9) / 1e3; }

}  // namespace

std::string timeline_events(int64_t rank, int64_t step, const Profile& profile) {
  std::vector<const Interval*> sorted;
  for (const Interval& interval : profile.intervals) sorted.push_back(&interval);
  std::stable_sort(sorted.begin(), sorted.end(), [](const Interval* a, const Interval* b) {
    return a->start != b->start ? a->start < b->start : a->order < b->order;
  });
  fmt::memory_buffer out;
  for (const Interval* i : sorted) {
    const std::string name = i->name[0] ? i->name : activity_name(i->activity);
    fmt::format_to(std::back_inserter(out),
                   FMT_COMPILE(",\n{{\"name\":{},\"cat\":\"{}\",\"ph\":\"X\",\"pid\":{},\"tid\":{},"
                               "\"ts\":{},\"dur\":{},"
                               "\"args\":{{\"step\":{},\"phase\":\"{}\",\"bytes\":{}{}}}}}"),
                   json_string(name), activity_name(i->activity), rank, i->stream + 1,
                   microseconds(i->start), microseconds(i->end - i->start), step,
                   phase_name(i->phase), i->bytes,
                   i->group[0] ? ",\"group\":" + json_string(i->group) : std::string());
  }
  return fmt::to_string(out);
}

std::string timeline_file(int64_t ranks, int32_t streams, const std::vector<std::string>& events) {
  fmt::memory_buffer out;
  const auto to = std::back_inserter(out);
  fmt::format_to(to,
                 "{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
                 "{{\"name\":\"moetwin\",\"ph\":\"M\",\"pid\":0,\"args\":{{}}}}");
  for (int64_t rank = 0; rank < ranks; ++rank) {
    fmt::format_to(
        to,
        ",\n{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":{},\"args\":{{\"name\":\"rank "
        "{}\"}}}}",
        rank, rank);
    for (int32_t stream = -1; stream < streams; ++stream)
      fmt::format_to(to,
                     ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":{},\"tid\":{},\"args\":{{"
                     "\"name\":\"{}\"}}}}",
                     rank, stream + 1,
                     stream < 0 ? std::string("host") : fmt::format("stream {}", stream));
  }
  for (const std::string& text : events) out.append(text.data(), text.data() + text.size());
  fmt::format_to(to, "\n]}}\n");
  return fmt::to_string(out);
}

}  // namespace moetwin
