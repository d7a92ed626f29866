#include "core/record/remote.h"

#include "core/base/bytes.h"
#include "core/record/profile_schedule.h"

namespace moetwin {
namespace {

enum class Kind : uint8_t { step, validation };

template <class T>
void put_all(ByteWriter& w, const std::vector<T>& values) {
  w.put(static_cast<uint64_t>(values.size()));
  for (const T& v : values) w.put(v);
}

template <class T>
std::vector<T> get_all(ByteReader& r) {
  std::vector<T> values(r.get<uint64_t>());
  for (T& v : values) v = r.get<T>();
  return values;
}

void put_probe(ByteWriter& w, const ProbePart& p) {
  w.put(static_cast<uint64_t>(p.sequences.size()));
  for (const ProbeSequence& s : p.sequences) {
    w.put(s.sequence).put(s.tokens);
    put_all(w, s.first);
    w.put(s.changed).put(s.entropy).put(s.variance);
  }
  w.put(p.weighed).put(p.harmed);
  put_all(w, p.bias);
}

ProbePart get_probe(ByteReader& r) {
  ProbePart p;
  p.sequences.resize(r.get<uint64_t>());
  for (ProbeSequence& s : p.sequences) {
    for (int64_t* value : {&s.sequence, &s.tokens}) *value = r.get<int64_t>();
    s.first = get_all<int64_t>(r);
    s.changed = r.get<int64_t>();
    for (double* value : {&s.entropy, &s.variance}) *value = r.get<double>();
  }
  for (int64_t* value : {&p.weighed, &p.harmed}) *value = r.get<int64_t>();
  p.bias = get_all<double>(r);
  return p;
}

void put_layer(ByteWriter& w, const LayerStep& l) {
  w.put(l.layer).put(l.tokens);
  put_all(w, l.counts);
  put_all(w, l.kept);
  put_all(w, l.probability);
  w.put(l.aux).put(l.z).put(l.importance).put(l.load_variance);
  w.put(l.probe.has_value());
  if (l.probe) put_probe(w, *l.probe);
}

LayerStep get_layer(ByteReader& r) {
  LayerStep l;
  l.layer = r.get<int64_t>();
  l.tokens = r.get<int64_t>();
  l.counts = get_all<int64_t>(r);
  l.kept = get_all<int64_t>(r);
  l.probability = get_all<double>(r);
  for (double* value : {&l.aux, &l.z, &l.importance, &l.load_variance}) *value = r.get<double>();
  if (r.get<bool>()) l.probe = get_probe(r);
  return l;
}

}  // namespace

RemoteSink::RemoteSink(const Scenario& scenario, std::function<void(const std::string&)> send)
    : scenario_(scenario), send_(std::move(send)) {}

bool RemoteSink::wants_detail(int64_t step) const { return traced(scenario_, step); }

void RemoteSink::add(RankStep s) {
  ByteWriter w;
  w.put(Kind::step).put(s.rank).put(s.step).put(s.start).put(s.end).put(s.ce_sum);
  w.put(s.valid_tokens).put(static_cast<uint64_t>(s.layers.size()));
  for (const LayerStep& l : s.layers) put_layer(w, l);
  w.put(static_cast<uint64_t>(s.received.size()));
  for (const auto& [layer, rows] : s.received) w.put(layer).put(rows);
  w.put(static_cast<uint64_t>(s.profile.intervals.size()));
  for (const Interval& i : s.profile.intervals)
    w.put(i.start)
        .put(i.end)
        .put(i.activity)
        .put(i.phase)
        .put(i.stream)
        .text(i.name)
        .text(i.group)
        .put(i.bytes)
        .put(i.order);
  w.put(static_cast<uint64_t>(s.profile.traffic.size()));
  for (const Traffic& t : s.profile.traffic)
    w.text(t.kind)
        .text(t.purpose)
        .text(t.group)
        .text(t.algorithm)
        .put(t.members)
        .put(t.calls)
        .put(t.bytes)
        .put(t.bytes_off_node)
        .put(t.seconds);
  w.put(s.memory).put(s.host_syncs).put(s.grad_norm).put(s.learning_rate).put(s.loss_scale);
  w.put(s.skipped);
  send_(w.take());
}

void RemoteSink::add_validation(int64_t rank, int64_t step, double ce_sum, int64_t tokens) {
  send_(ByteWriter().put(Kind::validation).put(rank).put(step).put(ce_sum).put(tokens).take());
}

const char* RemoteReceiver::keep(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return names_.insert(name).first->c_str();
}

void RemoteReceiver::receive(const std::string& bytes) {
  ByteReader r(bytes);
  const auto kind = r.get<Kind>();
  const auto rank = r.get<int64_t>();
  const auto step = r.get<int64_t>();
  if (kind == Kind::validation) {
    const auto ce_sum = r.get<double>();
    return sink_.add_validation(rank, step, ce_sum, r.get<int64_t>());
  }
  RankStep s;
  s.rank = rank;
  s.step = step;
  for (double* value : {&s.start, &s.end, &s.ce_sum}) *value = r.get<double>();
  s.valid_tokens = r.get<int64_t>();
  for (auto n = r.get<uint64_t>(); n > 0; --n) s.layers.push_back(get_layer(r));
  for (auto n = r.get<uint64_t>(); n > 0; --n) {
    const auto layer = r.get<int64_t>();
    s.received[layer] = r.get<int64_t>();
  }
  s.profile.intervals.resize(r.get<uint64_t>());
  for (Interval& i : s.profile.intervals) {
    i.start = r.get<double>();
    i.end = r.get<double>();
    i.activity = r.get<Activity>();
    i.phase = r.get<Phase>();
    i.stream = r.get<int32_t>();
    i.name = keep(r.text());
    i.group = keep(r.text());
    i.bytes = r.get<int64_t>();
    i.order = r.get<int64_t>();
  }
  s.profile.traffic.resize(r.get<uint64_t>());
  for (Traffic& t : s.profile.traffic) {
    for (std::string* text : {&t.kind, &t.purpose, &t.group, &t.algorithm}) *text = r.text();
    for (int64_t* value : {&t.members, &t.calls, &t.bytes, &t.bytes_off_node})
      *value = r.get<int64_t>();
    t.seconds = r.get<double>();
  }
  s.memory = r.get<MemoryUse>();
  s.host_syncs = r.get<int64_t>();
  for (double* value : {&s.grad_norm, &s.learning_rate, &s.loss_scale}) *value = r.get<double>();
  s.skipped = r.get<bool>();
  sink_.add(std::move(s));
}

}  // namespace moetwin
