#include "tests/core/parallel/pipeline_run.h"

#include <algorithm>
#include <map>
#include <memory>
#include <sstream>
#include <tuple>

namespace moetwin::test {

namespace {

constexpr size_t kSentAtOnce = 2;  // StageExchange
constexpr double kNotYet = -1;

/// One activation or gradient that crosses from stage to stage.
struct Transfer {
  int64_t micro_batch = 0, stage = 0;  ///< virtual stage that gives it
  size_t from = 0, giver = 0;          ///< rank and index of its action
  size_t to = 0, taker = 0;
  double done = kNotYet;
};

struct Stage {
  std::vector<PipelineAction> actions;
  std::vector<size_t> turn;   ///< by action: pairs are one
  std::vector<size_t> begin;  ///< by turn: its first action; and the number of actions
  std::vector<double> done;
  std::vector<Transfer*> input, output;  ///< by action; null: none
  std::array<std::vector<Transfer*>, 2> sent;
};

class Play {
 public:
  Play(const std::string& schedule, int64_t stages, int64_t micro_batches, int64_t chunks,
       const WorkTimes& times, bool paired)
      : times_(times), p_(stages), v_(chunks), stages_(static_cast<size_t>(stages)) {
    for (int64_t s = 0; s < stages; ++s) {
      Stage& stage = stages_[static_cast<size_t>(s)];
      stage.actions = pipeline_actions(schedule, {stages, s, micro_batches, chunks, paired});
      for (size_t i = 0; i < stage.actions.size(); ++i) {
        if (i == 0 || !stage.actions[i - 1].beside_next) stage.begin.push_back(i);
        stage.turn.push_back(stage.begin.size() - 1);
      }
      stage.begin.push_back(stage.actions.size());
      stage.done.assign(stage.actions.size(), kNotYet);
      stage.input.resize(stage.actions.size());
      stage.output.resize(stage.actions.size());
    }
    connect();
  }

  PipelineRun run() {
    PipelineRun result;
    if (!fault_.empty()) {
      result.stuck = fault_;
      return result;
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (Stage& stage : stages_) moved = advance(stage) || moved;
      for (auto& [edge, transfers] : edges_) moved = carry(transfers) || moved;
    }
    for (size_t s = 0; s < stages_.size(); ++s) {
      const Stage& stage = stages_[s];
      const auto open = std::find(stage.done.begin(), stage.done.end(), kNotYet);
      if (open != stage.done.end() && result.stuck.empty()) {
        std::ostringstream text;
        text << "stage " << s << " cannot begin action " << open - stage.done.begin();
        result.stuck = text.str();
      }
      if (!stage.done.empty()) result.seconds = std::max(result.seconds, stage.done.back());
      result.in_flight.push_back(in_flight(stage));
    }
    return result;
  }

 private:
  using Edge = std::tuple<int, size_t, size_t>;  ///< way, from, to

  double seconds(PipelineWork work) const {
    const double share = 1.0 / static_cast<double>(v_);
    switch (work) {
      case PipelineWork::forward:
        return share * times_.forward;
      case PipelineWork::backward:
        return share * (times_.backward_input + times_.backward_weight);
      case PipelineWork::backward_input:
        return share * times_.backward_input;
      case PipelineWork::backward_weight:
        break;
    }
    return share * times_.backward_weight;
  }

  void connect() {
    std::map<std::tuple<int, int64_t, int64_t>, Transfer*> made;  ///< by way, micro-batch, giver
    const auto each = [&](auto&& see) {
      for (size_t s = 0; s < stages_.size(); ++s)
        for (size_t i = 0; i < stages_[s].actions.size(); ++i) {
          const PipelineAction& a = stages_[s].actions[i];
          if (a.work == PipelineWork::backward_weight) continue;
          const int way = a.work == PipelineWork::forward ? 0 : 1;
          see(s, i, a, way, a.chunk * p_ + static_cast<int64_t>(s));
        }
    };
    each([&](size_t s, size_t i, const PipelineAction& a, int way, int64_t g) {
      if (way == 0 ? g + 1 == p_ * v_ : g == 0) return;
      const int64_t next = way == 0 ? g + 1 : g - 1;
      all_.push_back(std::make_unique<Transfer>());
      Transfer* t = all_.back().get();
      *t = {a.micro_batch, g, s, i, static_cast<size_t>(next % p_), 0, kNotYet};
      made[{way, a.micro_batch, g}] = t;
      stages_[s].output[i] = t;
      edges_[{way, s, t->to}].push_back(t);
    });
    std::map<Edge, size_t> taken;
    each([&](size_t s, size_t i, const PipelineAction& a, int way, int64_t g) {
      if (way == 0 ? g == 0 : g + 1 == p_ * v_) return;
      const int64_t giver = way == 0 ? g - 1 : g + 1;
      Transfer* t = made[{way, a.micro_batch, giver}];
      const Edge edge{way, static_cast<size_t>(giver % p_), s};
      const size_t number = taken[edge]++;
      if (!t || number >= edges_[edge].size() || edges_[edge][number] != t) {
        fault_ = "receives are not in the order of sends";
        return;
      }
      t->taker = i;
      stages_[s].input[i] = t;
    });
  }

  bool advance(Stage& stage) {
    bool moved = false;
    for (size_t t = 0; t + 1 < stage.begin.size(); ++t) {
      const size_t first = stage.begin[t], end = stage.begin[t + 1];
      if (stage.done[first] != kNotYet) continue;
      double start = first > 0 ? stage.done[first - 1] : 0, work = 0;
      for (size_t i = first; i < end; ++i) {
        work += seconds(stage.actions[i].work);
        const Transfer* input = stage.input[i];
        if (!input) continue;
        if (input->done == kNotYet) return moved;
        start = std::max(start, input->done);
      }
      // What the turn before left to wait for.
      for (size_t i = t > 0 ? stage.begin[t - 1] : first; i < first; ++i) {
        const auto& sent = stage.sent[way(stage.actions[i])];
        if (!stage.output[i] || sent.size() <= kSentAtOnce) continue;
        const Transfer* oldest = sent[sent.size() - 1 - kSentAtOnce];
        if (oldest->done == kNotYet) return moved;
        start = std::max(start, oldest->done);
      }
      for (size_t i = first; i < end; ++i) {
        stage.done[i] = start + work;
        if (stage.output[i]) stage.sent[way(stage.actions[i])].push_back(stage.output[i]);
      }
      moved = true;
    }
    return moved;
  }

  bool carry(std::vector<Transfer*>& transfers) {
    bool moved = false;
    double before = 0;
    for (Transfer* t : transfers) {
      if (t->done == kNotYet) {
        const double sent = stages_[t->from].done[t->giver];
        const Stage& to = stages_[t->to];
        const size_t turn = to.turn[t->taker];
        const double ready = turn >= 2 ? to.done[to.begin[turn - 1] - 1] : 0;
        if (sent == kNotYet || ready == kNotYet) return moved;
        t->done = std::max({sent, ready, before}) + times_.transfer;
        moved = true;
      }
      before = t->done;
    }
    return moved;
  }

  static size_t way(const PipelineAction& a) { return a.work == PipelineWork::forward ? 0 : 1; }

  static int64_t in_flight(const Stage& stage) {
    int64_t now = 0, most = 0;
    for (const PipelineAction& a : stage.actions) {
      if (a.work == PipelineWork::forward) most = std::max(most, ++now);
      if (a.work == PipelineWork::backward || a.work == PipelineWork::backward_weight) --now;
    }
    return most;
  }

  WorkTimes times_;
  int64_t p_, v_;
  std::vector<Stage> stages_;
  std::vector<std::unique_ptr<Transfer>> all_;
  std::map<Edge, std::vector<Transfer*>> edges_;
  std::string fault_;
};

}  // namespace

PipelineRun play(const std::string& schedule, int64_t stages, int64_t micro_batches, int64_t chunks,
                 const WorkTimes& times, bool paired) {
  return Play(schedule, stages, micro_batches, chunks, times, paired).run();
}

}  // namespace moetwin::test
