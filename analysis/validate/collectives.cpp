// Rows of nccl.csv: single collectives, alone on the machine.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "analysis/validate/collective_row.h"
#include "analysis/validate/device_time.h"
#include "analysis/validate/kind.h"
#include "core/ops/elementwise.h"

namespace moetwin {
namespace {

HostSizes shared(std::vector<int64_t> sizes) {
  return std::make_shared<const std::vector<int64_t>>(std::move(sizes));
}

/// One rank's part in the collectives of a group.
class Member {
 public:
  Member(Backend& device, Communicator& group)
      : device_(device),
        group_(group),
        memory_(device, false),
        stream_(device.stream("measured")) {}

  double seconds(const CollectiveRow& row) {
    const int64_t n = group_.size();
    // Elements of 4 bytes, as nccl-tests' float.
    const auto each = std::max<int64_t>(
        1, static_cast<int64_t>(std::ceil(row.bytes / 4 / static_cast<double>(n))));
    const Tensor whole = elements(each * n), part = elements(each);
    switch (row.kind) {
      case CollectiveKind::all_reduce:
        return time([&] { group_.all_reduce(whole, whole, ReduceOp::sum, stream_, "measured"); });
      case CollectiveKind::all_gather:
        return time([&] {
          group_.all_gather(part, whole, stream_, "measured");
          if (row.copied_bytes > 0) device_.launch(copy(whole, elements(each * n)), stream_);
        });
      case CollectiveKind::reduce_scatter:
        return time(
            [&] { group_.reduce_scatter(whole, part, ReduceOp::sum, stream_, "measured"); });
      case CollectiveKind::broadcast:
        return time([&] { group_.broadcast(whole, 0, stream_, "measured"); });
      case CollectiveKind::all_to_all_v:
        return row.to_next ? exchange(each * n, true) : exchange(each, false);
      case CollectiveKind::send:
        return time([&] {
          if (group_.rank() == 0) group_.send(whole, n - 1, stream_, "measured");
          if (group_.rank() == n - 1) group_.recv(whole, 0, stream_, "measured");
        });
      default:
        return 0;
    }
  }

 private:
  Tensor elements(int64_t count) {
    return memory_.allocate({count}, DType::f32, MemoryClass::communication, "measured");
  }
  double time(const std::function<void()>& work) { return device_seconds(device_, stream_, work); }
  /// `each` rows of one element to every member, or to the next one only (nccl-tests' sendrecv).
  double exchange(int64_t each, bool to_next) {
    const int64_t n = group_.size(), me = group_.rank();
    std::vector<int64_t> s(static_cast<size_t>(n)), r(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      s[static_cast<size_t>(i)] = !to_next || i == (me + 1) % n ? each : 0;
      r[static_cast<size_t>(i)] = !to_next || me == (i + 1) % n ? each : 0;
    }
    const auto begins = [](const std::vector<int64_t>& v) {
      std::vector<int64_t> begin;
      int64_t at = 0;
      for (const int64_t x : v) begin.push_back(at), at += x;
      return std::pair(begin, at);
    };
    const auto [sb, all_sent] = begins(s);
    const auto [rb, all_received] = begins(r);
    const Tensor from = elements(all_sent).reshaped({all_sent, 1});
    const Tensor to = elements(all_received).reshaped({all_received, 1});
    return time([&] {
      group_.all_to_all_v(from, to, shared(s), shared(sb), shared(r), shared(rb), stream_,
                          "measured");
    });
  }

  Backend& device_;
  Communicator& group_;
  Allocator memory_;
  Stream stream_;
};

Scenario world_of(const CollectiveRow& row, int64_t ranks) {
  Scenario s;
  s.name = "collectives";
  s.distributed_config.world_size = s.distributed_config.data_parallel_size = ranks;
  s.training_config.global_batch_size = ranks;
  s.training_config.numerics = "none";
  if (row.copies > 0) {
    s.model_config.moe_layer_config.top_k = row.copies;
    s.routing.groups = row.nodes, s.routing.kept_groups = row.most_nodes;
  }
  s.cluster.profile = row.profile;
  s.cluster.collective_algorithm = row.algorithm;
  if (!row.nccl_algo.empty()) s.nccl["NCCL_ALGO"] = row.nccl_algo;
  s.memory.on_exceed = "report";
  return s;
}

std::vector<Prediction> run_collectives(const MakeCluster& make,
                                        const std::vector<CollectiveRow>& rows) {
  const CollectiveRow& first = rows.front();
  const int64_t per_node = make(world_of(first, 1))->device().gpus_per_node;
  const Placement place = place_of(first, per_node);
  std::vector<Prediction> predictions(rows.size());
  if (!place.reason.empty()) {
    for (Prediction& p : predictions) p.note = place.reason;
    return predictions;
  }
  make(world_of(first, place.world))->run([&](Backend& device) {
    if (place.group.index_of(device.properties().rank) < 0) return;
    // Copies of tokens are known by the group they go to.
    const auto all = device.communicator(place.group, first.copies > 0 ? "ep" : "all");
    Member member(device, *all);
    for (size_t i = 0; i < rows.size(); ++i) {
      const double seconds = member.seconds(rows[i]);
      // A send ends with its receiver; the others agree.
      if (all->rank() == 0) predictions[i].value = seconds;
    }
  });
  return predictions;
}

}  // namespace

void plan_collectives(const std::vector<PublishedRow>& rows, RowPlan& plan) {
  struct Group {
    std::vector<size_t> rows;
    std::vector<CollectiveRow> work;
  };
  std::map<std::string, Group> groups;
  for_each_row(rows, plan, [&](const PublishedRow& row, size_t i, RowResult& result) {
    CollectiveRow work = read_collective_row(row);
    if (work.other_hardware) result.standing = RowStanding::other_hardware;
    if (!work.reason.empty()) {
      result.reason = work.reason;
      return;
    }
    result.measured = work.seconds;
    result.unit = "s";
    if (row.mentions("notes", "read off a chart")) result.caveat = "read off a chart";
    Group& group = groups[fmt::format("{}|{}|{}|{}|{}|{}", work.profile, work.ranks, work.nodes,
                                      work.algorithm, work.nccl_algo, work.copies)];
    group.rows.push_back(i);
    group.work.push_back(std::move(work));
  });
  for (auto& [key, group] : groups)
    plan.batches.push_back({group.rows, [work = std::move(group.work)](const MakeCluster& make) {
                              return run_collectives(make, work);
                            }});
}

}  // namespace moetwin
