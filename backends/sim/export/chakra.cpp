#include "backends/sim/export/chakra.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "backends/sim/cost/roofline.h"
#include "backends/sim/export/protobuf_wire.h"
#include "backends/sim/representative/collective_prices.h"
#include "core/base/error.h"
#include "core/device/bytes_sent.h"
#include "core/record/output_file.h"

namespace moetwin {
namespace {

// et_def.proto
enum NodeType { kComp = 4, kSend = 5, kRecv = 6, kCollective = 7 };
enum CommType {
  kAllReduce = 0,
  kAllGather = 2,
  kBroadcast = 5,
  kAllToAll = 6,
  kReduceScatter = 7,
  kBarrier = 9
};
namespace node_field {
constexpr int kId = 1, kName = 2, kType = 3, kDataDeps = 5, kDuration = 7, kAttr = 10;
}
namespace attr_field {
constexpr int kName = 1, kInt32 = 7, kInt64 = 9, kUint64 = 13, kBool = 27, kString = 29;
}

CommType comm_type(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_gather:
      return kAllGather;
    case CollectiveKind::reduce_scatter:
      return kReduceScatter;
    case CollectiveKind::all_to_all_v:
      return kAllToAll;
    case CollectiveKind::broadcast:
      return kBroadcast;
    case CollectiveKind::barrier:
      return kBarrier;
    default:
      return kAllReduce;
  }
}

int64_t row_bytes(const Tensor& tensor) {
  int64_t bytes = dtype_size(tensor.dtype);
  for (int d = 1; d < tensor.shape.rank; ++d) bytes *= tensor.shape[d];
  return bytes;
}

/// Bytes that the call sends to each member.
std::vector<int64_t> sent_rows(const CollectiveCall& call) {
  std::vector<int64_t> bytes = *call.send_rows;
  for (int64_t& b : bytes) b *= row_bytes(call.send);
  return bytes;
}

/// Of the members of a group: what its collectives and theirs alone have in common.
std::string key_of(const Group& group, const std::string& name) {
  return fmt::format("{} {} {} {} {} {}", name, group.base, group.n0, group.stride0, group.n1,
                     group.stride1);
}

class TraceNode {
 public:
  TraceNode(uint64_t id, const char* name, NodeType type, const std::vector<uint64_t>& after) {
    message_.varint(node_field::kId, id);
    message_.text(node_field::kName, name);
    message_.varint(node_field::kType, type);
    message_.packed(node_field::kDataDeps, after);
  }
  void duration(uint64_t micros) { message_.varint(node_field::kDuration, micros); }
  void attribute(const char* name, int field, int64_t value) {
    WireMessage attr;
    attr.text(attr_field::kName, name);
    attr.varint(field, static_cast<uint64_t>(value));
    message_.message(node_field::kAttr, attr);
  }
  void attribute(const char* name, const std::string& value) {
    WireMessage attr;
    attr.text(attr_field::kName, name);
    attr.text(attr_field::kString, value);
    message_.message(node_field::kAttr, attr);
  }
  void append_to(std::string& file) const { message_.append_to(file); }

 private:
  WireMessage message_;
};

/// Numbers for groups and for the names of communicators, the same on all ranks.
struct Numbers {
  std::map<std::string, int64_t> of_group;          ///< from 1, by key without a name
  std::map<std::string, int64_t> of_name;           ///< from 0
  std::map<int64_t, std::vector<int64_t>> members;  ///< by group
  /// Calls of all-to-alls whose pairs are not all of one size: "key sequence".
  std::set<std::string> uneven;
};

/// A kernel of fewer bytes takes no time at all in a roofline, which ASTRA-sim refuses at time 0.
constexpr int64_t kLeastBytes = 4096;

/// What one rank's file says.
class RankTrace {
 public:
  RankTrace(CollectivePrices& prices, const Numbers& numbers, int64_t rank)
      : prices_(prices), machine_(prices.machine()), numbers_(numbers), rank_(rank) {
    const auto& slow = machine_.profile().slow_ranks;
    if (const auto found = slow.find(rank); found != slow.end()) slowness_ = found->second;
    for (const Fault& f : machine_.profile().faults)
      if (f.what == Fault::What::gpu && f.rank == rank && !f.drawn() && f.from <= 0 &&
          std::isinf(f.to))
        slowness_ /= f.left;
    WireMessage metadata;
    metadata.text(1, "0.0.4");
    metadata.append_to(file_);
  }

  void launch(const TapeSegment::Launch& l, const TapeSegment& segment, int32_t stream) {
    if (l.count == 0) return;
    double seconds = 0;
    for (uint32_t k = 0; k < l.count; ++k) seconds += segment.kernels[l.first + k].seconds;
    seconds *= slowness_;
    if (!corrections_.empty())
      seconds *= corrections_.factor(l.priced.name, "", static_cast<double>(l.priced.bytes));
    compute(l.priced.name, l.priced.flop, l.priced.bytes, seconds, stream);
  }
  void copy(const char* name, int64_t bytes, int32_t stream) {
    const auto seconds =
        copy_cost(Bytes(static_cast<double>(bytes)), machine_.profile().pcie).value;
    compute(name, 0, bytes, seconds, stream);
  }
  void collective(const CollectiveCall& call, const Group& group, const std::string& name,
                  int32_t stream) {
    const int64_t names = numbers_.of_name.at(name);
    const auto pair_tag = [&](int64_t number) { return names << 20 | (number & 0xfffff); };
    if (is_pair(call.kind)) {
      const bool sends = call.kind == CollectiveKind::send;
      const int64_t other = group.member(call.peer);
      const Tensor& tensor = sends ? call.send : call.recv;
      const std::vector<uint64_t> after = before(stream);
      const int64_t number = pairs_[{name, sends ? rank_ : other, sends ? other : rank_}]++;
      last(stream) = {pass(call.purpose, sends, other, tensor.bytes(), pair_tag(number), after)};
      return;
    }
    const std::string key = key_of(group, name);
    if (call.kind == CollectiveKind::all_to_all_v &&
        numbers_.uneven.count(fmt::format("{} {}", key, call.sequence))) {
      const std::vector<uint64_t> after = before(stream);
      std::vector<uint64_t> passes;
      const std::vector<int64_t> sent = sent_rows(call);
      const int64_t row = row_bytes(call.recv);
      const int64_t tag = pair_tag(static_cast<int64_t>(call.sequence));
      for (int64_t m = 0; m < group.size(); ++m) {
        const int64_t other = group.member(m);
        const auto i = static_cast<size_t>(m);
        if (other == rank_) continue;
        if (sent[i] > 0) passes.push_back(pass(call.purpose, true, other, sent[i], tag, after));
        if (const int64_t taken = (*call.recv_rows)[i] * row; taken > 0)
          passes.push_back(pass(call.purpose, false, other, taken, tag, after));
      }
      if (!passes.empty()) last(stream) = passes;
      return;
    }
    int64_t bytes = call.send.bytes();
    if (call.kind == CollectiveKind::all_to_all_v) {
      bytes = 0;
      for (const int64_t b : sent_rows(call)) bytes += b;
    }
    if (bytes == 0 && call.kind != CollectiveKind::barrier) return;
    // ASTRA-sim has one collective of a rank under way at a time and starts whichever is ready:
    // in another order than its partners', they would wait for each other for ever.
    if (last_collective_ > 0) add(stream, last_collective_);
    TraceNode node = begin(call.purpose, kCollective, before(stream));
    node.duration(micros_of(call, group, name, bytes));
    node.attribute("is_cpu_op", attr_field::kBool, 0);
    node.attribute("comm_type", attr_field::kInt64, comm_type(call.kind));
    node.attribute("comm_size", attr_field::kInt64, bytes);
    node.attribute("pg_name", std::to_string(numbers_.of_group.at(key_of(group, ""))));
    node.append_to(file_);
    last(stream) = {id_};
    last_collective_ = id_;
  }
  void record(int32_t stream) { events_.push_back(last(stream)); }
  void wait(int32_t stream, int64_t event) {
    // One of an earlier step is over.
    if (event < 0 || event >= static_cast<int64_t>(events_.size())) return;
    for (const uint64_t node : events_[static_cast<size_t>(event)]) add(stream, node);
  }
  void synchronize(int32_t stream) {
    for (const uint64_t node : last(stream)) host_.push_back(node);
  }
  const std::string& file() const { return file_; }

 private:
  struct Place {
    std::vector<uint64_t> last, waits;
    size_t host_seen = 0;  ///< of host_
    double micros = 0;     ///< exact end of the durations so far
  };
  Place& place(int32_t stream) {
    const auto i = static_cast<size_t>(stream);
    if (i >= places_.size()) places_.resize(i + 1);
    return places_[i];
  }
  std::vector<uint64_t>& last(int32_t stream) { return place(stream).last; }
  void add(int32_t stream, uint64_t node) { place(stream).waits.push_back(node); }
  /// What the next node of the stream comes after.
  std::vector<uint64_t> before(int32_t stream) {
    Place& p = place(stream);
    std::set<uint64_t> all(p.last.begin(), p.last.end());
    all.insert(p.waits.begin(), p.waits.end());
    // What the host waited for it has waited for in order.
    if (p.host_seen < host_.size())
      all.insert(host_.begin() + static_cast<std::ptrdiff_t>(p.host_seen), host_.end());
    p.host_seen = host_.size();
    p.waits.clear();
    return {all.begin(), all.end()};
  }
  /// On this machine, with nothing beside it; at least one.
  uint64_t micros_of(const CollectiveCall& call, const Group& group, const std::string& name,
                     int64_t bytes) {
    const auto n = static_cast<size_t>(group.size());
    const auto whole =
        static_cast<double>(call.kind == CollectiveKind::all_gather ? call.recv.bytes() : bytes);
    double& seconds = seconds_[{call.kind, key_of(group, name), whole}];
    if (seconds == 0)
      // All pairs are of one size: others are sends and receives.
      seconds =
          call.kind == CollectiveKind::all_to_all_v
              ? prices_
                    .all_to_all(group, name,
                                std::vector<double>(n * n, whole / static_cast<double>(n)))
                    .seconds
              : prices_
                    .price(
                        call.kind, group, name, whole,
                        static_cast<double>(bytes_sent(call, group.index_of(rank_), group.size())))
                    .seconds;
    return static_cast<uint64_t>(std::max(1LL, std::llround(seconds * 1e6)));
  }
  TraceNode begin(const char* name, NodeType type, const std::vector<uint64_t>& after) {
    return TraceNode(++id_, name, type, after);
  }
  void compute(const char* name, double flop, int64_t bytes, double seconds, int32_t stream) {
    TraceNode node = begin(name, kComp, before(stream));
    Place& p = place(stream);
    const double begun = std::floor(p.micros);
    p.micros += seconds * 1e6;
    node.duration(static_cast<uint64_t>(std::floor(p.micros) - begun));
    node.attribute("is_cpu_op", attr_field::kBool, 0);
    node.attribute("num_ops", attr_field::kInt64, std::max(1LL, std::llround(flop)));
    node.attribute("tensor_size", attr_field::kUint64, std::max(kLeastBytes, bytes));
    node.append_to(file_);
    p.last = {id_};
  }
  uint64_t pass(const char* name, bool sends, int64_t other, int64_t bytes, int64_t tag,
                const std::vector<uint64_t>& after) {
    TraceNode node = begin(name, sends ? kSend : kRecv, after);
    node.attribute("is_cpu_op", attr_field::kBool, 0);
    node.attribute("comm_src", attr_field::kInt32, sends ? rank_ : other);
    node.attribute("comm_dst", attr_field::kInt32, sends ? other : rank_);
    node.attribute("comm_size", attr_field::kInt64, bytes);
    node.attribute("comm_tag", attr_field::kInt32, tag);
    node.append_to(file_);
    return id_;
  }

  CollectivePrices& prices_;
  const Machine& machine_;
  const Numbers& numbers_;
  int64_t rank_;
  double slowness_ = 1;
  const Corrections corrections_{machine_.profile().corrections};
  uint64_t last_collective_ = 0;
  std::map<std::tuple<CollectiveKind, std::string, double>, double> seconds_;  ///< of calls so far
  uint64_t id_ = 0;
  std::vector<Place> places_;
  std::vector<std::vector<uint64_t>> events_;  ///< of this step
  std::vector<uint64_t> host_;                 ///< that the host waited for
  std::map<std::tuple<std::string, int64_t, int64_t>, int64_t> pairs_;
  std::string file_;
};

}  // namespace

ChakraExport::ChakraExport(const Machine& machine, const NcclChoice& choice, const Grid& grid,
                           const AlikeRanks& alike, const std::string& directory, int64_t step)
    : machine_(machine),
      choice_(choice),
      grid_(grid),
      alike_(alike),
      directory_(directory),
      step_(step) {
  make_directory(directory);
}

void ChakraExport::add(int64_t leader, const TapeSegment& segment) {
  const auto [at, first] = programs_.try_emplace(leader);
  Program& program = at->second;
  if (program.found) return;
  program.groups.insert(program.groups.end(), segment.groups.begin(), segment.groups.end());
  const std::vector<TapeEntry>& all = segment.entries;
  const auto recorded = [](auto begin, auto end) {
    return std::count_if(
        begin, end, [](const TapeEntry& entry) { return entry.kind == TapeEntry::Kind::record; });
  };
  if (segment.steps.empty() || segment.steps.back().step != step_) {
    program.events_before += recorded(all.begin(), all.end());
    return;
  }
  program.found = true;
  program.step = segment;
  if (!first) return;
  // Making the model is no part of its first step: that begins where the profile does.
  const auto begin = std::find_if(all.begin(), all.end(), [](const TapeEntry& entry) {
    return entry.kind == TapeEntry::Kind::take_profile;
  });
  program.events_before += recorded(all.begin(), begin);
  program.step.entries.assign(begin, all.end());
}

void ChakraExport::write() const {
  Numbers numbers;
  const auto groups_of = [&](int64_t rank) {
    const int64_t leader = alike_.leader(rank);
    std::vector<Group> groups;
    for (const TapeSegment::GroupMade& made : programs_.at(leader).groups)
      groups.push_back(counterpart(grid_, leader, made.group, rank));
    return groups;
  };
  // Names and groups have numbers first, and pairs are compared over all members.
  std::map<std::string, int64_t> pair_bytes;
  for (const auto& [leader, program] : programs_)
    for (const TapeSegment::GroupMade& made : program.groups) numbers.of_name[made.name] = 0;
  int64_t next = 0;
  for (auto& [name, number] : numbers.of_name) number = next++;
  for (int64_t rank = 0; rank < machine_.world(); ++rank) {
    const Program& program = programs_.at(alike_.leader(rank));
    const std::vector<Group> groups = groups_of(rank);
    for (const Group& group : groups) {
      const auto [found, added] = numbers.of_group.emplace(
          key_of(group, ""), static_cast<int64_t>(numbers.of_group.size()) + 1);
      if (added) numbers.members[found->second] = group.members();
    }
    for (const TapeSegment::Collective& c : program.step.collectives) {
      if (c.call.kind != CollectiveKind::all_to_all_v) continue;
      const auto made = static_cast<size_t>(c.communicator);
      const std::string key =
          fmt::format("{} {}", key_of(groups[made], program.groups[made].name), c.call.sequence);
      for (const int64_t bytes : sent_rows(c.call))
        if (pair_bytes.emplace(key, bytes).first->second != bytes) numbers.uneven.insert(key);
    }
  }
  CollectivePrices prices(machine_, choice_);
  for (int64_t rank = 0; rank < machine_.world(); ++rank) {
    const Program& program = programs_.at(alike_.leader(rank));
    require(program.found, "every rank has the step that is exported");
    const std::vector<Group> groups = groups_of(rank);
    RankTrace trace(prices, numbers, rank);
    using Kind = TapeEntry::Kind;
    for (const TapeEntry& entry : program.step.entries) {
      const auto index = static_cast<size_t>(entry.index);
      switch (entry.kind) {
        case Kind::launch:
          trace.launch(program.step.launches[index], program.step, entry.stream);
          break;
        case Kind::write:
          trace.copy("write", entry.bytes, entry.stream);
          break;
        case Kind::read:
          trace.copy("read", entry.bytes, entry.stream);
          trace.synchronize(entry.stream);
          break;
        case Kind::synchronize:
          trace.synchronize(entry.stream);
          break;
        case Kind::record:
          trace.record(entry.stream);
          break;
        case Kind::wait:
          trace.wait(entry.stream, entry.index - program.events_before);
          break;
        case Kind::collective: {
          const TapeSegment::Collective& c = program.step.collectives[index];
          const auto made = static_cast<size_t>(c.communicator);
          trace.collective(c.call, groups[made], program.groups[made].name, entry.stream);
          break;
        }
        default:
          break;
      }
    }
    OutputFile out(fmt::format("{}/step.{}.et", directory_, rank));
    out.write(trace.file());
    out.commit();
  }
  std::string text = "{";
  for (const auto& [number, members] : numbers.members)
    text += fmt::format("{}\n\"{}\": [{}]", text.size() > 1 ? "," : "", number,
                        fmt::join(members, ", "));
  OutputFile out(directory_ + "/comm_groups.json");
  out.write(text + "\n}\n");
  out.commit();
}

}  // namespace moetwin
