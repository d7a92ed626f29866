#include "analysis/compare/op_list.h"

#include <fmt/format.h>
#include <json/reader.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <memory>
#include <string_view>

#include "core/base/error.h"
#include "core/device/profile.h"

namespace moetwin {

OpLists read_op_lists(const Run& run) {
  return run.has_file("timeline.json") ? read_op_lists(run.file("timeline.json")) : OpLists{};
}

namespace {

/// Goes through the text of one event as core/record/timeline.cpp writes it.
class EventText {
 public:
  explicit EventText(std::string_view text) : left_(text) {}
  bool literal(std::string_view expected) {
    if (!left_.starts_with(expected)) return false;
    left_.remove_prefix(expected.size());
    return true;
  }
  /// Up to the closing quote; a text with escapes is not read.
  bool text(std::string& to) {
    const size_t end = left_.find_first_of("\"\\");
    if (end == std::string_view::npos || left_[end] != '"') return false;
    to.assign(left_.substr(0, end));
    left_.remove_prefix(end + 1);
    return true;
  }
  template <class Number>
  bool number(Number& to) {
    const auto [end, fault] = std::from_chars(left_.data(), left_.data() + left_.size(), to);
    if (fault != std::errc()) return false;
    left_.remove_prefix(static_cast<size_t>(end - left_.data()));
    return true;
  }

 private:
  std::string_view left_;
};

bool read_event(std::string_view line, OpLists& lists) {
  EventText t(line);
  ListedOp op;
  int64_t rank = 0, stream = 0;
  double start = 0, duration = 0;
  if (!(t.literal("{\"name\":\"") && t.text(op.name) && t.literal(",\"cat\":\"") &&
        t.text(op.activity) && t.literal(",\"ph\":\"X\",\"pid\":") && t.number(rank) &&
        t.literal(",\"tid\":") && t.number(stream) && t.literal(",\"ts\":") && t.number(start) &&
        t.literal(",\"dur\":") && t.number(duration) && t.literal(",\"args\":{\"step\":") &&
        t.number(op.step) && t.literal(",\"phase\":\"") && t.text(op.phase) &&
        t.literal(",\"bytes\":") && t.number(op.bytes)))
    return false;
  if (t.literal(",\"group\":\"") && !t.text(op.group)) return false;
  if (!t.literal("}}")) return false;
  op.start = start * 1e-6;
  op.seconds = duration * 1e-6;
  lists[{rank, stream - 1}].push_back(std::move(op));
  return true;
}

/// A file of ours has an event a line: ten times as fast to read as any JSON, and without its tree.
bool read_lines(std::string_view text, OpLists& lists) {
  if (!text.starts_with("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")) return false;
  bool ended = false;
  for (size_t at = text.find('\n') + 1; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (line.ends_with(',')) line.remove_suffix(1);
    ended = line == "]}";
    if (ended || read_event(line, lists)) continue;
    if (line.find("\"ph\":\"M\"") == std::string_view::npos) return false;
  }
  return ended;
}

void read_any(const std::string& path, const std::string& text, OpLists& lists) {
  lists.clear();
  Json::Value json;
  std::string fault;
  const std::unique_ptr<Json::CharReader> reader(Json::CharReaderBuilder().newCharReader());
  if (!reader->parse(text.data(), text.data() + text.size(), &json, &fault) ||
      !json["traceEvents"].isArray())
    throw Error(ErrorClass::configuration, fmt::format("{}: is no Chrome trace: {}", path, fault));
  for (const Json::Value& event : json["traceEvents"]) {
    if (event["ph"].asString() != "X") continue;
    ListedOp op;
    op.name = event["name"].asString();
    op.activity = event["cat"].asString();
    const Json::Value& arguments = event["args"];
    op.group = arguments["group"].asString();
    op.phase = arguments["phase"].asString();
    op.bytes = arguments["bytes"].asInt64();
    op.step = arguments["step"].asInt64();
    op.start = event["ts"].asDouble() * 1e-6;
    op.seconds = event["dur"].asDouble() * 1e-6;
    lists[{event["pid"].asInt64(), event["tid"].asInt64() - 1}].push_back(op);
  }
}

}  // namespace

OpLists read_op_lists(const std::string& path) {
  OpLists lists;
  std::ifstream in(path, std::ios::binary);
  std::string text;
  in.seekg(0, std::ios::end);
  if (in.tellg() > 0) text.resize(static_cast<size_t>(in.tellg()));
  in.seekg(0);
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!read_lines(text, lists)) read_any(path, text, lists);
  for (auto& [place, ops] : lists) {
    // Time that ops lost is none of them.
    std::erase_if(ops, [](const ListedOp& op) { return op.name == kSlowedName; });
    std::stable_sort(ops.begin(), ops.end(),
                     [](const ListedOp& a, const ListedOp& b) { return a.start < b.start; });
  }
  return lists;
}

double OpClass::ratio() const {
  if (a.calls == 0 || b.calls == 0 || a.seconds <= 0)
    return std::numeric_limits<double>::quiet_NaN();
  return b.seconds / static_cast<double>(b.calls) / (a.seconds / static_cast<double>(a.calls));
}

namespace {

std::string text(const ListedOp& op) {
  return fmt::format("{}{} of {} bytes", op.name, op.group.empty() ? "" : " in " + op.group,
                     op.bytes);
}

bool same(const ListedOp& a, const ListedOp& b) {
  return a.name == b.name && a.group == b.group && a.bytes == b.bytes;
}

// How the host thread's time falls into stretches is no part of what is launched.
bool is_host(const std::pair<int64_t, int64_t>& place) { return place.second < 0; }

using Key = std::tuple<std::string, std::string, int64_t>;

void add(const OpLists& lists, OpClass::Side OpClass::*side, std::map<Key, OpClass>& classes) {
  for (const auto& [place, ops] : lists) {
    if (is_host(place)) continue;
    for (const ListedOp& op : ops) {
      OpClass& c = classes[{op.name, op.group, op.bytes}];
      c.name = op.name;
      c.group = op.group;
      c.activity = op.activity;
      c.bytes = op.bytes;
      ++(c.*side).calls;
      (c.*side).seconds += op.seconds;
    }
  }
}

}  // namespace

Alignment align(const OpLists& a, const OpLists& b) {
  Alignment result;
  result.any = !a.empty() && !b.empty();
  if (!result.any) return result;
  std::map<std::pair<int64_t, int64_t>, int> places;
  for (const auto& [place, ops] : a)
    if (!is_host(place)) places[place], result.ops_a += static_cast<int64_t>(ops.size());
  for (const auto& [place, ops] : b)
    if (!is_host(place)) places[place], result.ops_b += static_cast<int64_t>(ops.size());
  const std::vector<ListedOp> none;
  for (const auto& [place, unused] : places) {
    const auto in_a = a.find(place), in_b = b.find(place);
    const std::vector<ListedOp>&left = in_a == a.end() ? none : in_a->second,
          &right = in_b == b.end() ? none : in_b->second;
    for (size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
      const bool both = i < left.size() && i < right.size();
      if (both && same(left[i], right[i])) {
        ++result.aligned;
      } else if (result.first_mismatch.empty()) {
        result.first_mismatch =
            fmt::format("rank {}, stream {}, op {}: {} against {}", place.first, place.second,
                        i + 1, i < left.size() ? text(left[i]) : "nothing",
                        i < right.size() ? text(right[i]) : "nothing");
      }
    }
  }
  std::map<Key, OpClass> classes;
  add(a, &OpClass::a, classes);
  add(b, &OpClass::b, classes);
  for (auto& [key, c] : classes) result.classes.push_back(c);
  std::stable_sort(
      result.classes.begin(), result.classes.end(), [](const OpClass& x, const OpClass& y) {
        return std::abs(x.b.seconds - x.a.seconds) > std::abs(y.b.seconds - y.a.seconds);
      });
  return result;
}

}  // namespace moetwin
