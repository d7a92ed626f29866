#include "tests/cuda_on_host/backend/routing_log.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/error.h"
#include "core/device/checked.h"
#include "core/ops/router.h"

namespace moetwin::test {
namespace {

// Operands of router_select.
enum { kBias = 1, kProbs = 2, kWeights = 3, kIds = 4, kCounts = 5 };

class WatchedBackend : public CheckedBackend {
 public:
  WatchedBackend(Backend& inner, std::vector<RoutingCall>& log, size_t calls,
                 const std::vector<RoutingCall>* replay)
      : CheckedBackend(inner), log_(log), calls_(calls), replay_(replay) {}

  void launch(const OpCall& call, Stream stream) override {
    CheckedBackend::launch(call, stream);
    if (std::string_view(call.op->name) != "router_select" || log_.size() >= calls_) return;
    const auto attr = call.get<SelectAttr>();
    require(call[kProbs].dtype == DType::f32, "a router in fp32");
    probs_ = read<float>(call[kProbs], stream);
    RoutingCall seen;
    seen.top_k = attr.top_k;
    seen.ids = sorted_ids(read<int32_t>(call[kIds], stream), attr.top_k);
    seen.margins = margins(call, attr, stream);
    if (replay_) {
      const RoutingCall& wanted = replay_->at(log_.size());
      if (wanted.ids != seen.ids) replace(call, attr, wanted, stream);
      seen.ids = wanted.ids;
    }
    log_.push_back(std::move(seen));
  }

 private:
  template <class T>
  std::vector<T> read(const Tensor& tensor, Stream stream) {
    std::vector<T> values(static_cast<size_t>(tensor.elements()));
    CheckedBackend::read(tensor, values.data(), stream);
    return values;
  }

  static std::vector<int32_t> sorted_ids(std::vector<int32_t> ids, int64_t k) {
    for (auto token = ids.begin(); token != ids.end(); token += k) std::sort(token, token + k);
    return ids;
  }

  /// Between the `count`-th largest and the next; 1 where there is no next.
  static float gap(std::vector<float> values, int64_t count) {
    std::sort(values.begin(), values.end(), std::greater<>());
    const auto last = static_cast<size_t>(count - 1);
    return last + 1 < values.size() ? values[last] - values[last + 1] : 1.0F;
  }

  /// The choice of groups by the sum of their two best, and of experts in these groups: the
  /// smaller.
  static float margin(const SelectAttr& attr, const std::vector<float>& scores) {
    if (attr.kept_groups == attr.groups) return gap(scores, attr.top_k);
    const size_t size = scores.size() / static_cast<size_t>(attr.groups);
    std::vector<float> of_groups;
    for (size_t first = 0; first < scores.size(); first += size) {
      std::vector<float> group(scores.begin() + static_cast<ptrdiff_t>(first),
                               scores.begin() + static_cast<ptrdiff_t>(first + size));
      std::sort(group.begin(), group.end(), std::greater<>());
      of_groups.push_back(size == 1 ? group[0] : group[0] + group[1]);
    }
    std::vector<float> sorted = of_groups, open;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    const float worst = sorted[static_cast<size_t>(attr.kept_groups - 1)];
    for (size_t e = 0; e < scores.size(); ++e)
      if (of_groups[e / size] >= worst) open.push_back(scores[e]);
    return std::min(gap(of_groups, attr.kept_groups), gap(open, attr.top_k));
  }

  std::vector<float> margins(const OpCall& call, const SelectAttr& attr, Stream stream) {
    const auto experts = static_cast<size_t>(call[kProbs].shape[1]);
    std::vector<float> bias(experts, 0.0F), found;
    if (call[kBias].defined()) bias = read<float>(call[kBias], stream);
    for (size_t t = 0; t < probs_.size(); t += experts) {
      std::vector<float> scores(probs_.begin() + static_cast<ptrdiff_t>(t),
                                probs_.begin() + static_cast<ptrdiff_t>(t + experts));
      for (size_t e = 0; e < experts; ++e) scores[e] += bias[e];
      found.push_back(margin(attr, scores));
    }
    return found;
  }

  void replace(const OpCall& call, const SelectAttr& attr, const RoutingCall& wanted,
               Stream stream) {
    require(attr.p_norm == 1 && attr.weight_scale == 1 && attr.groups == 1,
            "a plain router with weights normalised to 1");
    const auto experts = static_cast<size_t>(call[kProbs].shape[1]);
    const auto k = static_cast<size_t>(attr.top_k);
    std::vector<int32_t> ids = wanted.ids;
    std::vector<float> weights(ids.size());
    std::vector<int64_t> counts(experts + 1, 0);
    for (size_t t = 0; t * k < ids.size(); ++t) {
      const float* p = probs_.data() + t * experts;
      const auto first = ids.begin() + static_cast<ptrdiff_t>(t * k);
      std::sort(first, first + attr.top_k, [p](int32_t a, int32_t b) { return p[a] > p[b]; });
      float sum = 0;
      for (size_t i = 0; i < k; ++i) sum += p[ids[t * k + i]];
      for (size_t i = 0; i < k; ++i) {
        weights[t * k + i] = p[ids[t * k + i]] / sum;
        ++counts[static_cast<size_t>(ids[t * k + i])];
      }
    }
    write(call[kIds], ids.data(), stream);
    write(call[kWeights], weights.data(), stream);
    write(call[kCounts], counts.data(), stream);
  }

  std::vector<RoutingCall>& log_;
  size_t calls_;
  const std::vector<RoutingCall>* replay_;
  std::vector<float> probs_;
};

class WatchedCluster : public Cluster {
 public:
  WatchedCluster(std::unique_ptr<Cluster> inner, RoutingLog& log, size_t calls,
                 const RoutingLog* replay)
      : inner_(std::move(inner)), log_(log), calls_(calls), replay_(replay) {
    for (int64_t rank = 0; rank < inner_->world(); ++rank) log_[rank];  // before threads ask
  }
  int64_t world() const override { return inner_->world(); }
  DeviceProperties device() const override { return inner_->device(); }
  std::string description() const override { return inner_->description(); }
  void run(const std::function<void(Backend&)>& program) override {
    inner_->run([&](Backend& device) {
      const int64_t rank = device.properties().rank;
      WatchedBackend watched(device, log_.at(rank), calls_, replay_ ? &replay_->at(rank) : nullptr);
      program(watched);
    });
  }

 private:
  std::unique_ptr<Cluster> inner_;
  RoutingLog& log_;
  size_t calls_;
  const RoutingLog* replay_;
};

}  // namespace

std::string to_bytes(const RoutingLog& log) {
  ByteWriter writer;
  writer.put(log.size());
  for (const auto& [rank, calls] : log) {
    writer.put(rank).put(calls.size());
    for (const RoutingCall& call : calls) {
      writer.put(call.top_k).put(call.margins.size());
      for (const float m : call.margins) writer.put(m);
      for (const int32_t id : call.ids) writer.put(id);
    }
  }
  return writer.take();
}

RoutingLog routing_log(const std::string& bytes) {
  ByteReader reader(bytes);
  RoutingLog log;
  for (auto ranks = reader.get<size_t>(); ranks > 0; --ranks) {
    std::vector<RoutingCall>& calls = log[reader.get<int64_t>()];
    calls.resize(reader.get<size_t>());
    for (RoutingCall& call : calls) {
      call.top_k = reader.get<int64_t>();
      call.margins.resize(reader.get<size_t>());
      for (float& m : call.margins) m = reader.get<float>();
      call.ids.resize(call.margins.size() * static_cast<size_t>(call.top_k));
      for (int32_t& id : call.ids) id = reader.get<int32_t>();
    }
  }
  return log;
}

RoutingDifference compare(const RoutingLog& a, const RoutingLog& b, double tie) {
  RoutingDifference found;
  for (const auto& [rank, calls] : a) {
    const std::vector<RoutingCall>& others = b.at(rank);
    if (others.size() != calls.size()) throw std::runtime_error("routers were asked as often");
    for (size_t c = 0; c < calls.size(); ++c) {
      const auto k = static_cast<ptrdiff_t>(calls[c].top_k);
      if (others[c].ids.size() != calls[c].ids.size())
        throw std::runtime_error("routers saw as many tokens");
      for (size_t t = 0; t < calls[c].margins.size(); ++t) {
        const double margin = calls[c].margins[t];
        const auto mine = calls[c].ids.begin() + static_cast<ptrdiff_t>(t) * k;
        const bool differs =
            !std::equal(mine, mine + k, others[c].ids.begin() + static_cast<ptrdiff_t>(t) * k);
        ++found.tokens;
        found.undecided += margin <= tie;
        if (!differs) continue;
        ++(margin <= tie ? found.moved_ties : found.moved);
        found.widest = std::max(found.widest, margin);
      }
    }
  }
  return found;
}

std::unique_ptr<Cluster> watch_routing(std::unique_ptr<Cluster> inner, RoutingLog& log,
                                       size_t calls, const RoutingLog* replay) {
  return std::make_unique<WatchedCluster>(std::move(inner), log, calls, replay);
}

}  // namespace moetwin::test
