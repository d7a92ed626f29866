#include "backends/cuda/job/call_log.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/bytes.h"

namespace moetwin {

std::string describe(const CallRecord& call, const std::string& group) {
  std::string text =
      fmt::format("{} {} of group {}", collective_name(call.kind), call.sequence, group);
  if (*call.purpose) text += fmt::format(" (\"{}\")", call.purpose);
  if (!call.what.empty()) text += ": " + call.what;
  return text;
}

std::string RankStatus::bytes() const {
  ByteWriter w;
  w.put(rank).put(program_ended).text(last).put(static_cast<uint64_t>(communicators.size()));
  for (const CommunicatorState& c : communicators) {
    w.text(c.name).put(static_cast<uint64_t>(c.members.size()));
    for (int64_t m : c.members) w.put(m);
    w.put(c.created).put(c.called).put(c.started).put(c.ended).text(c.next).put(c.waiting);
  }
  return w.take();
}

RankStatus RankStatus::read(const std::string& bytes) {
  RankStatus s;
  if (bytes.empty()) return s;
  ByteReader r(bytes);
  s.rank = r.get<int64_t>();
  s.program_ended = r.get<bool>();
  s.last = r.text();
  s.communicators.resize(r.get<uint64_t>());
  for (CommunicatorState& c : s.communicators) {
    c.name = r.text();
    c.members.resize(r.get<uint64_t>());
    for (int64_t& m : c.members) m = r.get<int64_t>();
    c.created = r.get<bool>();
    c.called = r.get<uint64_t>();
    c.started = r.get<uint64_t>();
    c.ended = r.get<uint64_t>();
    c.next = r.text();
    c.waiting = r.get<double>();
  }
  return s;
}

int CallLog::add_communicator(const std::string& name, const std::vector<int64_t>& members) {
  const std::lock_guard lock(mutex_);
  communicators_.emplace_back();
  communicators_.back().name = name;
  communicators_.back().members = members;
  return static_cast<int>(communicators_.size()) - 1;
}

void CallLog::created(int communicator) {
  const std::lock_guard lock(mutex_);
  communicators_[static_cast<size_t>(communicator)].created = true;
}

uint64_t CallLog::called(CallRecord record) {
  const std::lock_guard lock(mutex_);
  raise(&CommunicatorState::called, record);
  calls_.push_back(std::move(record));
  if (calls_.size() > kKept) {
    calls_.pop_front();
    ++first_;
  }
  return first_ + calls_.size() - 1;
}

void CallLog::program_ended() {
  const std::lock_guard lock(mutex_);
  program_ended_ = true;
}

CallRecord* CallLog::at(uint64_t call) {
  return call >= first_ && call < first_ + calls_.size() ? &calls_[call - first_] : nullptr;
}

void CallLog::raise(uint64_t CommunicatorState::*last, const CallRecord& record) {
  if (is_pair(record.kind)) return;
  uint64_t& value = communicators_[static_cast<size_t>(record.communicator)].*last;
  value = std::max(value, record.sequence);
}

void CallLog::started(uint64_t call, double now) {
  const std::lock_guard lock(mutex_);
  CallRecord* record = at(call);
  if (!record || record->started >= 0) return;
  record->started = now;
  raise(&CommunicatorState::started, *record);
}

void CallLog::ended(uint64_t call, double now) {
  const std::lock_guard lock(mutex_);
  CallRecord* record = at(call);
  if (!record || record->ended >= 0) return;
  record->ended = now;
  if (record->started < 0) record->started = now;
  raise(&CommunicatorState::started, *record);
  raise(&CommunicatorState::ended, *record);
}

const CallRecord* CallLog::oldest_open(int communicator) const {
  for (const CallRecord& c : calls_)
    if (c.communicator == communicator && c.ended < 0) return &c;
  return nullptr;
}

RankStatus CallLog::status(double now) const {
  const std::lock_guard lock(mutex_);
  RankStatus s;
  s.rank = rank_;
  s.program_ended = program_ended_;
  s.communicators = communicators_;
  if (!calls_.empty()) {
    const CallRecord& last = calls_.back();
    s.last = describe(last, communicators_[static_cast<size_t>(last.communicator)].name);
  }
  for (size_t i = 0; i < s.communicators.size(); ++i) {
    CommunicatorState& c = s.communicators[i];
    if (const CallRecord* open = oldest_open(static_cast<int>(i))) {
      c.next = describe(*open, c.name);
      c.waiting = open->started < 0 ? 0 : now - open->started;
    }
  }
  return s;
}

std::string CallLog::text(size_t most, double now) const {
  const std::lock_guard lock(mutex_);
  std::string text;
  const size_t begin = calls_.size() - std::min(most, calls_.size());
  for (size_t i = begin; i < calls_.size(); ++i) {
    const CallRecord& c = calls_[i];
    const std::string& group = communicators_[static_cast<size_t>(c.communicator)].name;
    const std::string state = c.ended >= 0     ? fmt::format("done {:.3g} s ago", now - c.ended)
                              : c.started >= 0 ? fmt::format("in it for {:.3g} s", now - c.started)
                                               : std::string("not started on the device");
    text += fmt::format("\n  {}, stream {}, called {:.3g} s ago, {}", describe(c, group), c.stream,
                        now - c.called, state);
  }
  return text;
}

std::optional<uint64_t> CallLog::overdue(double now, double seconds) const {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < calls_.size(); ++i)
    if (calls_[i].ended < 0 && calls_[i].started >= 0 && now - calls_[i].started > seconds)
      return first_ + i;
  return std::nullopt;
}

std::optional<CallRecord> CallLog::find(uint64_t call) const {
  const std::lock_guard lock(mutex_);
  if (call < first_ || call >= first_ + calls_.size()) return std::nullopt;
  return calls_[call - first_];
}

std::vector<int64_t> CallLog::members(int communicator) const {
  const std::lock_guard lock(mutex_);
  return communicators_[static_cast<size_t>(communicator)].members;
}

std::string CallLog::name(int communicator) const {
  const std::lock_guard lock(mutex_);
  return communicators_[static_cast<size_t>(communicator)].name;
}

}  // namespace moetwin
