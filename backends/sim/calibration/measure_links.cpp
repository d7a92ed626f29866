// Host time of launches, copies over PCIe, collectives.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "backends/sim/calibration/bench.h"
#include "core/base/units.h"
#include "core/ops/elementwise.h"

namespace moetwin {
namespace {

constexpr int kLaunches = 500;  // fewer than a stream takes before the host has to wait

struct NamedGroup {
  Group group;
  std::unique_ptr<Communicator> communicator;  ///< null: this rank is no member
};

/// Ranks 0 to n-1 of a node for n = 2, 4, ..., one rank of each node, and the world.
std::vector<Group> groups_of(const DeviceProperties& p) {
  const int64_t here = std::min(p.gpus_per_node, p.world), nodes = p.world / here;
  std::vector<Group> list;
  for (int64_t n = 2; n <= here; n *= 2) list.push_back({0, 1, 0, n, 1});
  if (nodes < 2) {
    if (here > 1 && list.back().n1 != here) list.push_back({0, 1, 0, here, 1});
    return list;
  }
  list.push_back({0, 1, 0, nodes, here});
  if (here > 1) list.push_back({0, 1, 0, p.world, 1});
  return list;
}

/// All-to-all-v of rows of 256 bytes. `hot`: every member sends half of its rows to member 0.
struct Exchange {
  static constexpr int64_t kRowElements = 64;  // of fp32
  std::vector<std::vector<int64_t>> rows;      ///< [from][to]

  Exchange(int64_t members, int64_t bytes, bool hot) {
    const auto n = static_cast<size_t>(members);
    const int64_t all = std::max<int64_t>(members, bytes / (4 * kRowElements));
    for (size_t i = 0; i < n; ++i) {
      std::vector<int64_t> to(n, all / members);
      if (hot) {
        std::fill(to.begin(), to.end(), std::max<int64_t>(1, all / 2 / (members - 1)));
        to[0] = all / 2;
      }
      rows.push_back(to);
    }
  }
  HostSizes sent(int64_t me) const { return shared(rows[static_cast<size_t>(me)]); }
  HostSizes received(int64_t me) const {
    std::vector<int64_t> from;
    for (const auto& to : rows) from.push_back(to[static_cast<size_t>(me)]);
    return shared(from);
  }
  static HostSizes begins(const HostSizes& counts) {
    std::vector<int64_t> begin;
    int64_t at = 0;
    for (const int64_t count : *counts) begin.push_back(at), at += count;
    return shared(begin);
  }
  static int64_t sum(const HostSizes& counts) {
    int64_t all = 0;
    for (const int64_t count : *counts) all += count;
    return all;
  }
  std::vector<double> pair_bytes() const {
    std::vector<double> bytes;
    for (const auto& to : rows)
      for (const int64_t count : to) bytes.push_back(static_cast<double>(count * 4 * kRowElements));
    return bytes;
  }
  double longest_send() const {
    int64_t most = 0;
    for (size_t i = 0; i < rows.size(); ++i)
      most = std::max(most, sum(sent(static_cast<int64_t>(i))));
    return static_cast<double>(most * 4 * kRowElements);
  }
};

class Collectives {
 public:
  Collectives(Bench& bench, Communicator* world) : bench_(bench), world_(world) {}

  void measure(const Group& group, Communicator* c) {
    for (int64_t bytes = bench_.sizes().least_message; bytes <= bench_.sizes().most_message;
         bytes *= 8) {
      const int64_t n = group.size();
      const int64_t elements = std::max<int64_t>(n, bytes / 4 / n * n);
      const Tensor whole = bench_.drawn({elements}, DType::f32);
      const Tensor part = bench_.drawn({elements / n}, DType::f32);
      const auto time = [&](CollectiveKind kind, const char* suffix, double moved,
                            std::vector<double> pairs, auto work) {
        run(group, c, kind, suffix, moved, std::move(pairs), work);
      };
      const Stream s = bench_.stream();
      const auto size = static_cast<double>(4 * elements);
      time(CollectiveKind::all_reduce, "", size, {},
           [&] { c->all_reduce(whole, whole, ReduceOp::sum, s, "measure"); });
      time(CollectiveKind::all_gather, "", size, {},
           [&] { c->all_gather(part, whole, s, "measure"); });
      time(CollectiveKind::reduce_scatter, "", size, {},
           [&] { c->reduce_scatter(whole, part, ReduceOp::sum, s, "measure"); });
      time(CollectiveKind::broadcast, "", size, {}, [&] { c->broadcast(whole, 0, s, "measure"); });
      for (const bool hot : {false, true}) exchange(group, c, 4 * elements, hot);
      if (n == 2)
        time(CollectiveKind::send, "", size, {}, [&] {
          if (c->rank() == 0)
            c->send(whole, 1, s, "measure");
          else
            c->recv(whole, 0, s, "measure");
        });
    }
  }

 private:
  void exchange(const Group& group, Communicator* c, int64_t bytes, bool hot) {
    const Exchange e(group.size(), bytes, hot);
    HostSizes sent, received, send_begin, recv_begin;
    Tensor from, to;
    if (c) {
      sent = e.sent(c->rank()), received = e.received(c->rank());
      send_begin = Exchange::begins(sent), recv_begin = Exchange::begins(received);
      from = bench_.drawn({Exchange::sum(sent), Exchange::kRowElements}, DType::f32);
      to = bench_.empty({Exchange::sum(received), Exchange::kRowElements}, DType::f32);
    }
    run(group, c, CollectiveKind::all_to_all_v, hot ? ", half to one" : "", e.longest_send(),
        e.pair_bytes(), [&] {
          c->all_to_all_v(from, to, sent, send_begin, received, recv_begin, bench_.stream(),
                          "measure");
        });
  }

  template <class Work>
  void run(const Group& group, Communicator* c, CollectiveKind kind, const char* suffix,
           double bytes, std::vector<double> pairs, Work work) {
    const double seconds = bench_.median_seconds(
        [&] {
          if (c) work();
        },
        [&] { world_->barrier(bench_.stream()); });
    if (!bench_.is_first()) return;
    CollectiveMeasurement m;
    m.what = fmt::format("{} of {}, {}{}", collective_name(kind), group.size(), format_bytes(bytes),
                         suffix);
    m.kind = kind;
    m.group = group;
    m.bytes = bytes;
    m.pair_bytes = std::move(pairs);
    m.seconds = seconds;
    if (seconds > 0) bench_.into().collectives.push_back(std::move(m));
  }

  Bench& bench_;
  Communicator* world_;
};

}  // namespace

void measure_launches(Bench& bench) {
  Backend& d = bench.device();
  const Tensor x = bench.drawn({1024}, bench.sizes().dtype);
  const OpCall call = scale(x, x, {1});
  d.launch(call, bench.stream());
  d.synchronize(bench.stream());
  const double before = d.now();
  for (int i = 0; i < kLaunches; ++i) d.launch(call, bench.stream());
  const double after = d.now();
  d.synchronize(bench.stream());
  if (bench.is_first()) bench.into().launch_seconds = (after - before) / kLaunches;
}

void measure_copies(Bench& bench) {
  const MeasureSizes& s = bench.sizes();
  std::vector<char> host;
  for (int64_t bytes = s.least_copy; bytes <= s.most_copy; bytes *= 8) {
    const Tensor tensor = bench.drawn({bytes / 4}, DType::f32);
    if (bench.numerics()) host.resize(static_cast<size_t>(bytes));
    char* memory = bench.numerics() ? host.data() : nullptr;
    for (const bool to_device : {true, false}) {
      const double seconds = bench.median_seconds(
          [&] {
            if (to_device)
              bench.device().write(tensor, memory, bench.stream());
            else
              bench.device().read(tensor, memory, bench.stream());
          },
          [] {});
      if (bench.is_first() && seconds > 0)
        bench.into().copies.push_back({to_device, static_cast<double>(bytes), seconds});
    }
  }
}

void measure_collectives(Bench& bench) {
  const DeviceProperties& p = bench.device().properties();
  if (p.world == 1) return;
  const auto world = bench.device().communicator({0, 1, 0, p.world, 1}, "calibrate world");
  std::vector<NamedGroup> groups;
  for (const Group& group : groups_of(p)) {
    NamedGroup named{group, nullptr};
    if (group.index_of(p.rank) >= 0)
      named.communicator =
          bench.device().communicator(group, fmt::format("calibrate {}", groups.size()));
    groups.push_back(std::move(named));
  }
  Collectives collectives(bench, world.get());
  for (const NamedGroup& g : groups) collectives.measure(g.group, g.communicator.get());
}

}  // namespace moetwin
