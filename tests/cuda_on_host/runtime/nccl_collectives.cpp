#include <time.h>

#include <Eigen/Core>
#include <algorithm>
#include <array>

#include "tests/cuda_on_host/runtime/nccl_comm.h"
#include "tests/cuda_on_host/runtime/settings.h"

namespace moetwin::emulated {
namespace {

void nap() {
  timespec pause = {0, 50'000};
  ::nanosleep(&pause, nullptr);
}

template <class T, class Wide>
void reduce_in(const std::vector<const char*>& parts, char* out, size_t count, ncclRedOp_t op) {
  for (size_t i = 0; i < count; ++i) {
    const auto at = [&](size_t part) {
      return static_cast<Wide>(reinterpret_cast<const T*>(parts[part])[i]);
    };
    Wide value = at(0);
    for (size_t part = 1; part < parts.size(); ++part)
      value = op == ncclSum   ? value + at(part)
              : op == ncclMax ? std::max(value, at(part))
                              : std::min(value, at(part));
    reinterpret_cast<T*>(out)[i] = static_cast<T>(value);
  }
}

void reduce(const std::vector<const char*>& parts, char* out, size_t count, ncclDataType_t type,
            ncclRedOp_t op) {
  switch (type) {
    case ncclInt32:
      return reduce_in<int32_t, int32_t>(parts, out, count, op);
    case ncclInt64:
      return reduce_in<int64_t, int64_t>(parts, out, count, op);
    case ncclFloat16:
      return reduce_in<Eigen::half, float>(parts, out, count, op);
    case ncclBfloat16:
      return reduce_in<Eigen::bfloat16, float>(parts, out, count, op);
    case ncclFloat64:
      return reduce_in<double, double>(parts, out, count, op);
    default:
      return reduce_in<float, float>(parts, out, count, op);
  }
}

// Rank r gets [begin[r], begin[r + 1]) of every rank's elements, reduced, into `out`.
bool reduce_pieces(Channel& channel, const char* send, const std::vector<size_t>& begin, char* out,
                   ncclDataType_t type, ncclRedOp_t op) {
  const auto ranks = static_cast<size_t>(channel.ranks()), me = static_cast<size_t>(channel.rank());
  const size_t size = size_of(type), mine = begin[me + 1] - begin[me];
  std::vector<std::vector<char>> received(ranks);
  std::vector<const char*> sources(ranks);
  std::vector<Part> parts;
  for (size_t r = 0; r < ranks; ++r) {
    if (r == me) {
      sources[r] = send + begin[me] * size;
      continue;
    }
    received[r].resize(mine * size);
    sources[r] = received[r].data();
    parts.push_back({true, static_cast<int>(r), const_cast<char*>(send) + begin[r] * size,
                     (begin[r + 1] - begin[r]) * size});
    parts.push_back({false, static_cast<int>(r), received[r].data(), mine * size});
  }
  if (!channel.move(std::move(parts))) return false;
  std::vector<char> reduced(mine * size);  // `out` may be this rank's own source
  reduce(sources, reduced.data(), mine, type, op);
  std::copy(reduced.begin(), reduced.end(), out);  // may be none
  return true;
}

}  // namespace

size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt64:
    case ncclFloat64:
      return 8;
    default:
      return 4;
  }
}

void Channel::watch_peers() {
  if (error.load() == ncclSuccess && segment.dead_rank() >= 0) error = ncclRemoteError;
}

bool Channel::wait_for_turn(uint64_t turn) {
  while (turn_.load() != turn) {
    if (aborted) return false;
    nap();
  }
  return !aborted;
}

bool Channel::move(std::vector<Part> parts) {
  std::erase_if(parts, [](const Part& p) { return p.bytes == 0; });
  for (int idle = 0; !parts.empty();) {
    if (aborted) return false;
    size_t moved = 0;
    std::array<std::array<bool, kMostRanks>, 2> stuck{};  // parts of one pair follow each other
    for (Part& p : parts) {
      bool& waits = stuck[p.sends][static_cast<size_t>(p.peer)];
      if (waits || p.bytes > settings().nccl_stalls_above) continue;
      Ring& ring = p.sends ? segment.ring(rank_, p.peer) : segment.ring(p.peer, rank_);
      const size_t now = p.sends ? ring.put(p.data + p.done, p.bytes - p.done)
                                 : ring.get(p.data + p.done, p.bytes - p.done);
      p.done += now;
      moved += now;
      waits = p.done < p.bytes;
    }
    std::erase_if(parts, [](const Part& p) { return p.done == p.bytes; });
    if (moved) {
      idle = 0;
    } else if (++idle > 20) {
      if (idle % 200 == 0) watch_peers();
      nap();
    }
  }
  return !aborted;
}

bool all_gather(Channel& channel, const char* send, char* recv, size_t bytes) {
  const auto me = static_cast<size_t>(channel.rank());
  if (recv + me * bytes != send) std::copy(send, send + bytes, recv + me * bytes);
  std::vector<Part> parts;
  for (int r = 0; r < channel.ranks(); ++r) {
    if (r == channel.rank()) continue;
    parts.push_back({true, r, recv + me * bytes, bytes});
    parts.push_back({false, r, recv + static_cast<size_t>(r) * bytes, bytes});
  }
  return channel.move(std::move(parts));
}

bool broadcast(Channel& channel, const char* send, char* recv, size_t bytes, int root) {
  std::vector<Part> parts;
  if (channel.rank() != root) {
    parts.push_back({false, root, recv, bytes});
  } else {
    if (recv != send) std::copy(send, send + bytes, recv);
    for (int r = 0; r < channel.ranks(); ++r)
      if (r != root) parts.push_back({true, r, recv, bytes});
  }
  return channel.move(std::move(parts));
}

bool reduce_scatter(Channel& channel, const char* send, char* recv, size_t count,
                    ncclDataType_t type, ncclRedOp_t op) {
  std::vector<size_t> begin;
  for (int r = 0; r <= channel.ranks(); ++r) begin.push_back(static_cast<size_t>(r) * count);
  return reduce_pieces(channel, send, begin, recv, type, op);
}

bool all_reduce(Channel& channel, const char* send, char* recv, size_t count, ncclDataType_t type,
                ncclRedOp_t op) {
  const auto ranks = static_cast<size_t>(channel.ranks()), me = static_cast<size_t>(channel.rank());
  const size_t size = size_of(type);
  std::vector<size_t> begin;
  for (size_t r = 0; r <= ranks; ++r) begin.push_back(count * r / ranks);
  if (!reduce_pieces(channel, send, begin, recv + begin[me] * size, type, op)) return false;
  std::vector<Part> parts;
  for (size_t r = 0; r < ranks; ++r) {
    if (r == me) continue;
    parts.push_back(
        {true, static_cast<int>(r), recv + begin[me] * size, (begin[me + 1] - begin[me]) * size});
    parts.push_back(
        {false, static_cast<int>(r), recv + begin[r] * size, (begin[r + 1] - begin[r]) * size});
  }
  return channel.move(std::move(parts));
}

}  // namespace moetwin::emulated
