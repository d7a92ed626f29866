#include "core/train/replica_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>

#include "core/base/error.h"
#include "core/train/checkpoint/checksum.h"

namespace moetwin {

namespace {

constexpr size_t kMostRanksNamed = 8;

/// What a rank keeps of a parameter, and the checksum of it.
struct Kept {
  std::string name;  ///< "weight of blocks.1.norm.gain", for messages
  int64_t key = 0;   ///< equal on ranks that keep the same elements
  int64_t sum = 0;
};

/// FNV-1a: two of the keys of a model are equal by chance once in 10^10 models.
int64_t hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return static_cast<int64_t>(hash & 0x7fffffffffffffffu);
}

class Collector {
 public:
  explicit Collector(Context& context) : context_(context) {}
  void add(const char* what, const Parameter& p, int64_t first, const Tensor& tensor) {
    if (!tensor.defined() || tensor.elements() == 0) return;
    std::string bytes(static_cast<size_t>(tensor.bytes()), '\0');
    context_.to_host(tensor, bytes.data(), context_.streams.compute);
    const std::string name = fmt::format("{} of {}", what, p.name);
    std::string place = fmt::format("{} {} {} {} {}", name, fmt::join(p.offset, ","),
                                    fmt::join(p.local, ","), first, tensor.elements());
    for (const ColumnRange& range : p.columns)
      place += fmt::format(" {}+{}", range.global, range.count);
    kept_.push_back({name, hash_of(place), checksum(bytes)});
  }
  std::vector<Kept> take() { return std::move(kept_); }

 private:
  Context& context_;
  std::vector<Kept> kept_;
};

/// The most elements that any rank keeps.
int64_t most(Context& context, Communicator& world, size_t own) {
  const Tensor count =
      context.memory.allocate({world.size()}, DType::i64, MemoryClass::workspace, "checked copies");
  const Tensor mine = count.slice(world.rank(), {1});
  const auto number = static_cast<int64_t>(own);
  context.device.write(mine, &number, context.streams.compute);
  world.all_gather(mine, count, context.streams.compute, "replica check");
  std::vector<int64_t> all(static_cast<size_t>(world.size()));
  context.to_host(count, all.data(), context.streams.compute);
  return *std::max_element(all.begin(), all.end());
}

/// [ranks][2 * most]: keys and sums in turns, zeros behind them.
std::vector<int64_t> gathered(Context& context, Communicator& world, const std::vector<Kept>& kept,
                              int64_t width) {
  const Tensor table = context.memory.allocate({world.size() * 2 * width}, DType::i64,
                                               MemoryClass::workspace, "checksums of copies");
  const Tensor mine = table.slice(world.rank() * 2 * width, {2 * width});
  std::vector<int64_t> own(static_cast<size_t>(2 * width), 0);
  for (size_t i = 0; i < kept.size(); ++i) {
    own[2 * i] = kept[i].key;
    own[2 * i + 1] = kept[i].sum;
  }
  context.device.write(mine, own.data(), context.streams.compute);
  world.all_gather(mine, table, context.streams.compute, "replica check");
  std::vector<int64_t> all(static_cast<size_t>(table.elements()));
  context.to_host(table, all.data(), context.streams.compute);
  return all;
}

/// The ranks whose copy differs from what most have (of equally many: from the lowest rank's).
std::vector<size_t> odd_ones(const std::map<size_t, int64_t>& sum_of_rank) {
  std::map<int64_t, size_t> votes;
  for (const auto& [rank, sum] : sum_of_rank) ++votes[sum];
  int64_t right = sum_of_rank.begin()->second;
  for (const auto& [sum, count] : votes)
    if (count > votes[right]) right = sum;
  std::vector<size_t> odd;
  for (const auto& [rank, sum] : sum_of_rank)
    if (sum != right) odd.push_back(rank);
  return odd;
}

}  // namespace

ReplicaCheck::ReplicaCheck(const Scenario& scenario, std::vector<FlatGroup>& groups,
                           Communicator* world)
    : every_steps_(scenario.training_config.numerics == "full"
                       ? scenario.distributed_config.check_replicas_every_steps
                       : 0),
      groups_(groups),
      world_(world) {}

bool ReplicaCheck::due(int64_t step) const {
  return world_ && every_steps_ > 0 && step % every_steps_ == 0;
}

void ReplicaCheck::run(Context& context, int64_t step) {
  Collector collector(context);
  for (FlatGroup& group : groups_) {
    group.for_each_piece(context, [&](const StatePiece& piece) {
      collector.add("weight", *piece.parameter, piece.first, piece.weight);
      collector.add("first moment", *piece.parameter, piece.first, piece.m);
      collector.add("second moment", *piece.parameter, piece.first, piece.v);
    });
    // What layers read: beside narrow or shared weights the pieces say nothing of it.
    if (!group.shards_everything())
      for (const FlatPlace& place : group.places())
        collector.add("value", *place.parameter, 0, place.parameter->value);
  }
  const std::vector<Kept> kept = collector.take();
  const int64_t width = most(context, *world_, kept.size());
  const std::vector<int64_t> all = gathered(context, *world_, kept, width);

  const auto ranks = static_cast<size_t>(world_->size()), row = static_cast<size_t>(2 * width);
  std::map<int64_t, std::map<size_t, int64_t>> sums;  // of key, of rank
  for (size_t rank = 0; rank < ranks; ++rank)
    for (size_t i = 0; i < row; i += 2)
      if (const int64_t key = all[rank * row + i]; key != 0)
        sums[key][rank] = all[rank * row + i + 1];
  for (const Kept& own : kept) {
    const std::map<size_t, int64_t>& copies = sums[own.key];
    std::vector<size_t> odd = odd_ones(copies);
    if (odd.empty()) continue;
    const size_t count = odd.size();
    odd.resize(std::min(count, kMostRanksNamed));
    throw Error(ErrorClass::fault,
                fmt::format("step {}: copies of one parameter differ: {} is not the same on rank{} "
                            "{}{} as on the other{} of {} ranks that keep it "
                            "(distributed_config.check_replicas_every_steps); look for a failing "
                            "GPU there, or resume from the last checkpoint",
                            step, own.name, count > 1 ? "s" : "", fmt::join(odd, ", "),
                            count > kMostRanksNamed ? ", ..." : "",
                            copies.size() - count > 1 ? "s" : "", copies.size()));
  }
}

}  // namespace moetwin
