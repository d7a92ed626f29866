#include "backends/sim/representative/items.h"

#include <algorithm>
#include <cstring>

namespace moetwin {

namespace {
double& at(Clocks& clocks, int clock) { return clocks[static_cast<size_t>(clock)]; }
}  // namespace

void add_sent(std::vector<Sent>& to, const Sent& sent, double times) {
  auto found = std::find_if(to.begin(), to.end(), [&](const Sent& s) {
    return std::strcmp(s.kind, sent.kind) == 0 && std::strcmp(s.purpose, sent.purpose) == 0 &&
           std::strcmp(s.way, sent.way) == 0 && s.group == sent.group;
  });
  if (found == to.end()) {
    found = to.insert(to.end(), sent);
    found->bytes = found->off_node = found->calls = found->seconds = 0;
  }
  found->bytes += times * sent.bytes;
  found->off_node += times * sent.off_node;
  found->calls += times * sent.calls;
  found->seconds += times * sent.seconds;
}

namespace {

/// One rank on its way through its list.
class Walk {
 public:
  Walk(Clocks& clocks, std::vector<Interval>* intervals, std::vector<Exchange>* exchanges)
      : clocks_(clocks), intervals_(intervals), exchanges_(exchanges) {}

  void step(const Item& item) {
    double &host = at(clocks_, kHostClock), &stream = at(clocks_, item.clock);
    switch (item.kind) {
      case Item::Kind::work: {
        double end = std::max(stream + item.seconds, host + item.host_bound);
        if (item.clock == kComputeClock) end += lost(item, end);
        note_host(item);
        note(item, std::max(stream, host + item.launched), end, item.clock - 1);
        stream = end;
        host += item.host;
        break;
      }
      case Item::Kind::collective:
        end_collective(item, begin_collective(item));
        break;
      case Item::Kind::record:
        events_.push_back(stream);
        break;
      case Item::Kind::wait:
        stream = std::max(stream, events_[static_cast<size_t>(item.event)]);
        break;
      case Item::Kind::synchronize:
        host = std::max(host, stream);
        break;
      case Item::Kind::host:
        note(item, host, host + item.host, -1);
        host += item.host;
        break;
    }
  }
  /// When it has come.
  double begin_collective(const Item& item) {
    note_host(item);
    at(clocks_, kHostClock) += item.host;
    return std::max(at(clocks_, item.clock), at(clocks_, kHostClock));
  }
  void end_collective(const Item& item, double start) {
    note(item, start, start + item.seconds, item.clock - 1);
    if (exchanges_ && item.seconds > 0 && item.clock <= kDispatchClock)
      exchanges_->push_back({start, item.seconds, item.ports});
    at(clocks_, item.clock) = start + item.seconds;
    if (item.slows_products > 0 || item.slows_others > 0)
      slowing_.push_back({start, start + item.seconds, item.slows_products, item.slows_others});
  }

 private:
  /// What work that would end then loses to collectives that were launched before it.
  double lost(const Item& item, double end) const {
    double seconds = 0;
    for (const Slowing& s : slowing_) {
      const double both = std::min(end, s.end) - std::max(end - item.seconds, s.start);
      if (both > 0) seconds += both * (item.products * s.products + (1 - item.products) * s.others);
    }
    return seconds;
  }
  void note(const Item& item, double start, double end, int32_t stream) {
    if (!intervals_ || end <= start) return;
    Interval interval;
    interval.start = start;
    interval.end = end;
    interval.activity = item.activity;
    interval.phase = item.phase;
    interval.stream = stream;
    intervals_->push_back(interval);
  }
  void note_host(const Item& item) {
    if (!intervals_) return;
    Item of_host = item;
    of_host.activity = Activity::host;
    note(of_host, clocks_[kHostClock], clocks_[kHostClock] + item.host, -1);
  }

  Clocks& clocks_;
  std::vector<Interval>* intervals_;
  std::vector<Exchange>* exchanges_;
  std::vector<double> events_;
  struct Slowing {
    double start, end, products, others;
  };
  std::vector<Slowing> slowing_;
};

}  // namespace

namespace {
/// Where ranks that were recorded together wait for each other.
bool is_meeting(const Item& item) {
  return item.kind == Item::Kind::collective && item.clock <= kDispatchClock;
}
}  // namespace

void replay(const ItemList& items, Clocks& clocks, std::vector<Interval>* intervals,
            std::vector<Exchange>* exchanges) {
  Walk walk(clocks, intervals, exchanges);
  for (const Item& item : items) walk.step(item);
}

void replay(const std::vector<const ItemList*>& ranks, std::vector<Clocks>& clocks,
            std::vector<Interval>* intervals, std::vector<Exchange>* exchanges) {
  std::vector<Walk> walks;
  for (size_t r = 0; r < ranks.size(); ++r)
    walks.emplace_back(clocks[r], r == 0 ? intervals : nullptr, r == 0 ? exchanges : nullptr);
  std::vector<double> come(ranks.size());
  std::vector<size_t> at(ranks.size(), 0);
  // What lies between collectives is each rank's own: who has guests does more there.
  const auto at_meeting = [&](size_t r) {
    const ItemList& items = *ranks[r];
    while (at[r] < items.size() && !is_meeting(items[at[r]])) walks[r].step(items[at[r]++]);
    return at[r] < items.size();
  };
  for (;;) {
    size_t there = 0;
    for (size_t r = 0; r < ranks.size(); ++r) there += at_meeting(r) ? 1 : 0;
    if (there < ranks.size()) return;
    for (size_t r = 0; r < ranks.size(); ++r)
      come[r] = walks[r].begin_collective((*ranks[r])[at[r]]);
    for (size_t r = 0; r < ranks.size(); ++r) {
      const Item& item = (*ranks[r])[at[r]];
      double start = come[r];
      for (size_t other = 0; other < ranks.size(); ++other)
        if ((*ranks[other])[at[other]].group == item.group) start = std::max(start, come[other]);
      walks[r].end_collective(item, start);
    }
    for (size_t& next : at) ++next;
  }
}

Segment::Segment() {
  for (auto& row : after) row.fill(kNever);
  for (size_t i = 0; i < kClocks; ++i) after[i][i] = 0;
}

void Segment::apply(Clocks& clocks) const {
  const Clocks before = clocks;
  for (size_t to = 0; to < kClocks; ++to) {
    double latest = kNever;
    for (size_t from = 0; from < kClocks; ++from)
      latest = std::max(latest, after[to][from] + before[from]);
    clocks[to] = latest;
  }
}

void Segment::then(const Segment& next) {
  const auto first = after;
  for (size_t to = 0; to < kClocks; ++to)
    for (size_t from = 0; from < kClocks; ++from) {
      double longest = kNever;
      for (size_t by = 0; by < kClocks; ++by)
        longest = std::max(longest, next.after[to][by] + first[by][from]);
      after[to][from] = longest;
    }
  parts += next.parts;
  steady_seconds += next.steady_seconds;
  if (busy + next.busy > 0)
    products =
        static_cast<float>((products * busy + next.products * next.busy) / (busy + next.busy));
  busy += next.busy;
  for (const Sent& s : next.sent) add_sent(sent, s);
  host_syncs += next.host_syncs;
}

Segment make_segment(const ItemList& items) { return make_segment(std::vector{&items}); }

Segment make_segment(const std::vector<const ItemList*>& ranks) {
  Segment segment;
  const ItemList& items = *ranks.front();
  if (items.empty()) return segment;
  // Lists that meet less or more often are not of one program; the first stands for all then.
  std::vector<const ItemList*> together;
  for (const ItemList* list : ranks)
    if (std::count_if(list->begin(), list->end(), is_meeting) ==
        std::count_if(items.begin(), items.end(), is_meeting))
      together.push_back(list);
  const auto latest = [](const std::vector<Clocks>& clocks) {
    Clocks latest = clocks.front();
    for (const Clocks& c : clocks)
      for (size_t i = 0; i < kClocks; ++i) latest[i] = std::max(latest[i], c[i]);
    return latest;
  };
  for (size_t from = 0; from < kClocks; ++from) {
    Clocks begin;
    begin.fill(kNever);
    begin[from] = 0;
    std::vector<Clocks> clocks(together.size(), begin);
    replay(together, clocks);
    const Clocks end = latest(clocks);
    for (size_t to = 0; to < kClocks; ++to) segment.after[to][from] = end[to];
  }
  // In its own wake.
  Clocks begin{};
  segment.apply(begin);
  std::vector<Clocks> clocks(together.size(), begin);
  const double compute = begin[kComputeClock];
  Profile profile;
  replay(together, clocks, &profile.intervals, &segment.exchanges);
  for (Exchange& exchange : segment.exchanges) exchange.start -= compute;
  const double end = std::max(compute, latest(clocks)[kComputeClock]);
  segment.steady_seconds = end - compute;
  segment.parts = step_parts(profile, compute, end);
  double others = 0, products = 0;
  for (const Item& item : items) {
    segment.host_syncs += item.kind == Item::Kind::synchronize ? 1 : 0;
    if (item.kind == Item::Kind::work && item.clock == kComputeClock &&
        item.activity == Activity::compute) {
      segment.busy += item.seconds;
      products += item.seconds * static_cast<double>(item.products);
    }
    if (item.kind != Item::Kind::collective || item.clock <= kDispatchClock) continue;
    segment.background.mix(others, item.ports, item.seconds);
    others += item.seconds;
  }
  if (segment.busy > 0) segment.products = static_cast<float>(products / segment.busy);
  return segment;
}

}  // namespace moetwin
