#include "core/device/access_log.h"

#include <algorithm>

namespace moetwin {

int64_t VectorClock::advance(int32_t stream) {
  const auto s = static_cast<size_t>(stream);
  if (s >= counts_.size()) counts_.resize(s + 1);
  return ++counts_[s];
}

void VectorClock::join(const VectorClock& other) {
  if (other.counts_.size() > counts_.size()) counts_.resize(other.counts_.size());
  for (size_t s = 0; s < other.counts_.size(); ++s)
    counts_[s] = std::max(counts_[s], other.counts_[s]);
}

bool VectorClock::within(const VectorClock& other) const {
  for (size_t s = 0; s < counts_.size(); ++s)
    if (counts_[s] > other[static_cast<int32_t>(s)]) return false;
  return true;
}

void AccessLog::split(Stretches& stretches, int64_t at) {
  auto it = stretches.upper_bound(at);
  if (it == stretches.begin()) return;
  --it;
  if (it->first == at || it->second.end <= at) return;
  Stretch rest = it->second;
  it->second.end = at;
  stretches.emplace(at, std::move(rest));
}

const MemoryAccess* AccessLog::conflict(const ByteRange& range, bool writes,
                                        const VectorClock& clock) {
  const auto found = blocks_.find(range.block);
  if (found == blocks_.end() || range.begin >= range.end) return nullptr;
  Stretches& stretches = found->second;
  auto it = stretches.upper_bound(range.begin);
  if (it != stretches.begin() && std::prev(it)->second.end > range.begin) --it;
  const auto unordered = [&](const MemoryAccess& a) {
    return a.stream >= 0 && clock[a.stream] < a.count;
  };
  for (; it != stretches.end() && it->first < range.end; ++it) {
    if (unordered(it->second.writer)) return &it->second.writer;
    if (!writes) continue;
    for (const MemoryAccess& reader : it->second.readers)
      if (unordered(reader)) return &reader;
  }
  return nullptr;
}

void AccessLog::note(const ByteRange& range, const MemoryAccess& access) {
  if (range.begin >= range.end) return;
  Stretches& stretches = blocks_[range.block];
  split(stretches, range.begin);
  split(stretches, range.end);
  auto it = stretches.lower_bound(range.begin);
  if (access.writes) {
    while (it != stretches.end() && it->first < range.end) it = stretches.erase(it);
    stretches[range.begin] = {range.end, access, {}};
    return;
  }
  int64_t at = range.begin;
  while (at < range.end) {
    if (it == stretches.end() || it->first > at) {  // nothing is known about the bytes before it
      const int64_t end = it == stretches.end() ? range.end : std::min(range.end, it->first);
      it = std::next(stretches.emplace(at, Stretch{end, {}, {access}}).first);
      at = end;
      continue;
    }
    auto& readers = it->second.readers;
    const auto same = std::find_if(readers.begin(), readers.end(), [&](const MemoryAccess& r) {
      return r.stream == access.stream;
    });
    if (same == readers.end())
      readers.push_back(access);
    else
      *same = access;
    at = it->second.end;
    ++it;
  }
}

}  // namespace moetwin
