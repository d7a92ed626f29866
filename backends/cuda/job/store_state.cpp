#include "backends/cuda/job/store_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/bytes.h"

namespace moetwin {
namespace {

ByteWriter ok() {
  ByteWriter writer;
  writer.put(StoreReply::ok);
  return writer;
}

std::string failed(const Failure& failure) {
  return ByteWriter().put(StoreReply::failed).put(failure.error_class).text(failure.message).take();
}

}  // namespace

std::string rank_list(const std::vector<int64_t>& ranks) {
  constexpr size_t kMostTold = 16;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const size_t told = std::min(ranks.size(), kMostTold);
  for (size_t i = 0; i < told; ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  if (told < ranks.size()) text += fmt::format(" and {} more", ranks.size() - told);
  return text;
}

StoreState::StoreState(StoreSettings settings)
    : settings_(std::move(settings)), ranks_(static_cast<size_t>(settings_.world)) {}

void StoreState::join(int64_t rank, const std::string& process) {
  Rank& r = ranks_.at(static_cast<size_t>(rank));
  r.joined = true;
  r.process = process;
  r.heard = now();
}

int64_t StoreState::joined() const {
  return std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.joined; });
}

std::vector<int64_t> StoreState::missing() const {
  std::vector<int64_t> missing;
  for (size_t r = 0; r < ranks_.size(); ++r)
    if (!ranks_[r].joined) missing.push_back(static_cast<int64_t>(r));
  return missing;
}

void StoreState::gone(int64_t rank) {
  Rank& r = ranks_.at(static_cast<size_t>(rank));
  if (r.gone) return;
  r.gone = true;
  if (!r.ended)
    fail({ErrorClass::fault,
          fmt::format("rank {} ({}) is gone: its process ended without a word (killed, out of host "
                      "memory, or crashed)",
                      rank, r.process)});
}

void StoreState::fail(const Failure& failure) {
  if (failure_) return;
  failure_ = failure;
  const std::string reply = failed(failure);
  std::vector<Reply> replies;
  for (auto& [key, waiting] : gets_) replies.push_back(std::move(waiting.reply));
  for (auto* meetings : {&gathers_, &compares_})
    for (auto& [name, meeting] : *meetings)
      for (auto& [rank, waiting] : meeting.waiting) replies.push_back(std::move(waiting.reply));
  gets_.clear();
  gathers_.clear();
  compares_.clear();
  for (const Reply& r : replies) r(reply);
}

std::vector<int64_t> StoreState::not_there(const Meeting& meeting) const {
  std::vector<int64_t> missing;
  for (int64_t member : meeting.members)
    if (!meeting.came.count(member)) missing.push_back(member);
  return missing;
}

double StoreState::tick() {
  double next = 1;
  const double time = now();
  std::vector<std::pair<Reply, std::string>> late;
  for (auto it = gets_.begin(); it != gets_.end();) {
    next = std::min(next, it->second.deadline - time);
    if (it->second.deadline > time) {
      ++it;
      continue;
    }
    late.emplace_back(std::move(it->second.reply),
                      fmt::format("{}: \"{}\" has not come", it->second.what, it->first));
    it = gets_.erase(it);
  }
  for (auto* meetings : {&gathers_, &compares_})
    for (auto& [name, meeting] : *meetings)
      for (auto it = meeting.waiting.begin(); it != meeting.waiting.end();) {
        next = std::min(next, it->second.deadline - time);
        if (it->second.deadline > time) {
          ++it;
          continue;
        }
        late.emplace_back(std::move(it->second.reply),
                          fmt::format("{}: {} of {} {} not come within the time", it->second.what,
                                      rank_list(not_there(meeting)), meeting.members.size(),
                                      not_there(meeting).size() == 1 ? "has" : "have"));
        it = meeting.waiting.erase(it);
      }
  for (const auto& [reply, text] : late) reply(failed({ErrorClass::fault, text}));
  return std::max(0.0, next);
}

void StoreState::meet(bool comparing, const std::string& name, int64_t rank,
                      std::vector<int64_t> members, const std::string& bytes, Waiting waiting) {
  auto& meetings = comparing ? compares_ : gathers_;
  Meeting& meeting = meetings[name];
  if (meeting.members.empty()) meeting.members = std::move(members);
  if (comparing && !meeting.came.empty() && meeting.came.begin()->second != bytes) {
    const auto& [other, theirs] = *meeting.came.begin();
    const Failure differ = {
        ErrorClass::deadlock,
        fmt::format("ranks {} and {} disagree about {}: rank {} calls {}, rank {} calls {}. All "
                    "members must call the same collectives in the same order",
                    other, rank, name, other, theirs, rank, bytes)};
    fail(differ);
    waiting.reply(failed(differ));
    return;
  }
  meeting.came[rank] = bytes;
  meeting.waiting[rank] = std::move(waiting);
  if (meeting.came.size() == meeting.members.size()) {
    ByteWriter all = ok();
    for (int64_t member : meeting.members) all.text(comparing ? "" : meeting.came[member]);
    const std::string reply = all.take();
    std::map<int64_t, Waiting> done = std::move(meeting.waiting);
    for (int64_t member : meeting.members)
      if (comparing) compares_of_.erase(member);
    meetings.erase(name);
    for (const auto& [member, w] : done) w.reply(reply);
    return;
  }
  if (comparing) {
    compares_of_[rank] = name;
    find_circle(rank);
  }
}

// A rank that waits in one comparison cannot come to another: follow from rank to the first rank
// that it waits for.
void StoreState::find_circle(int64_t from) {
  std::vector<int64_t> path{from};
  std::function<bool(int64_t)> walk = [&](int64_t rank) {
    const auto it = compares_of_.find(rank);
    if (it == compares_of_.end()) return false;
    for (int64_t next : not_there(compares_.at(it->second))) {
      if (next == from) return true;
      if (std::find(path.begin(), path.end(), next) != path.end()) continue;
      path.push_back(next);
      if (walk(next)) return true;
      path.pop_back();
    }
    return false;
  };
  if (!walk(from)) return;
  std::string text = "deadlock: ranks call collectives in different orders.";
  for (size_t i = 0; i < path.size(); ++i) {
    const std::string& call = compares_of_.at(path[i]);
    text += fmt::format("\n  rank {} is at {}: {}, and waits for rank {}", path[i], call,
                        compares_.at(call).came.at(path[i]), path[(i + 1) % path.size()]);
  }
  fail({ErrorClass::deadlock, text});
}

void StoreState::handle(const std::string& request, Reply reply) {
  ByteReader reader(request);
  const auto kind = reader.get<StoreRequest>();
  const bool waits = kind == StoreRequest::get || kind == StoreRequest::gather ||
                     kind == StoreRequest::compare || kind == StoreRequest::compare_pair;
  if (waits && failure_) return reply(failed(*failure_));
  switch (kind) {
    case StoreRequest::set: {
      const std::string key = reader.text();
      const std::string& value = values_[key] = reader.text();
      const auto [first, last] = gets_.equal_range(key);
      std::vector<Reply> replies;
      for (auto it = first; it != last; ++it) replies.push_back(std::move(it->second.reply));
      gets_.erase(first, last);
      const std::string answer = ok().take() + value;
      reply(ok().take());
      for (const Reply& r : replies) r(answer);
      return;
    }
    case StoreRequest::get: {
      const std::string key = reader.text();
      const double seconds = reader.get<double>();
      if (const auto it = values_.find(key); it != values_.end())
        return reply(ok().take() + it->second);
      gets_.emplace(
          key, Waiting{fmt::format("waited {:.3g} s", seconds), now() + seconds, std::move(reply)});
      return;
    }
    case StoreRequest::gather:
    case StoreRequest::compare: {
      const std::string name = reader.text();
      const auto rank = reader.get<int64_t>();
      std::vector<int64_t> members(reader.get<uint64_t>());
      for (int64_t& m : members) m = reader.get<int64_t>();
      const std::string bytes = reader.text();
      const auto seconds = reader.get<double>();
      return meet(kind == StoreRequest::compare, name, rank, std::move(members), bytes,
                  {fmt::format("{}: rank {} waited {:.3g} s", name, rank, seconds), now() + seconds,
                   std::move(reply)});
    }
    case StoreRequest::compare_pair: {
      const std::string name = reader.text();
      const auto rank = reader.get<int64_t>();
      const std::string mine = reader.text();
      const auto it = pairs_.find(name);
      if (it == pairs_.end()) {
        pairs_[name] = {rank, mine};
        return reply(ok().take());
      }
      const auto [other, theirs] = it->second;
      pairs_.erase(it);
      if (mine == theirs) return reply(ok().take());
      fail({ErrorClass::deadlock,
            fmt::format("ranks {} and {} disagree about {}: rank {} has {}, rank {} has {}", other,
                        rank, name, other, theirs, rank, mine)});
      return reply(failed(*failure_));
    }
    case StoreRequest::beat: {
      Rank& r = ranks_.at(static_cast<size_t>(reader.get<int64_t>()));
      r.status = reader.text();
      r.heard = now();
      ByteWriter answer = ok();
      answer.put(failure_.has_value());
      if (failure_) answer.put(failure_->error_class).text(failure_->message);
      return reply(answer.take());
    }
    case StoreRequest::states: {
      ByteWriter answer = ok();
      answer.put(static_cast<uint64_t>(ranks_.size()));
      for (size_t i = 0; i < ranks_.size(); ++i) {
        const Rank& r = ranks_[i];
        answer.put(static_cast<int64_t>(i)).put(now() - r.heard).put(r.gone).put(r.ended);
        answer.text(r.process).text(r.status);
      }
      return reply(answer.take());
    }
    case StoreRequest::fail: {
      const auto error_class = reader.get<ErrorClass>();
      fail({error_class, reader.text()});
      return reply(ok().put(failure_->error_class).text(failure_->message).take());
    }
    case StoreRequest::post:
      if (settings_.on_post) settings_.on_post(reader.text());
      return reply(ok().take());
    case StoreRequest::clock:
      return reply(ok().put(now()).take());
    case StoreRequest::goodbye:
      ranks_.at(static_cast<size_t>(reader.get<int64_t>())).ended = true;
      return reply(ok().take());
  }
  reply(failed({ErrorClass::internal, "a request that is not known"}));
}

}  // namespace moetwin
