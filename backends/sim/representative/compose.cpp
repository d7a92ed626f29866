#include "backends/sim/representative/compose.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.h"

namespace moetwin {

void ChunkPasses::multiply() {
  if (data) {
    forward.then(data->whole);
    forward_memory.then(data->memory);
  }
  for (const PlacedBlock& b : blocks) {
    forward.then(b.passes->forward.whole);
    forward_memory.then(b.passes->forward.memory);
  }
  for (size_t i = blocks.size(); i-- > 0;) {
    backward.then(blocks[i].passes->backward.whole);
    backward_memory.then(blocks[i].passes->backward.memory);
    weights.then(blocks[i].passes->weights.whole);
    weights_memory.then(blocks[i].passes->weights.memory);
  }
}

namespace {

/// Results that may be on their way before a stage waits for the oldest, as StageExchange has it.
constexpr size_t kSentAtOnce = 2;

struct Transfer {
  double given = -1, wanted = -1, done = -1;  ///< -1: not known
  double seconds = 0;
};

/// Transfers of one way through one stage, in order: sent, or received.
struct Lane {
  std::vector<Transfer*> order;
  size_t next = 0;  ///< first one that is not done
  double end = 0;
};

/// Kernels in [start, end): they take `share` of the time, and of that `products` are of matrix
/// products and attention.
struct Kernels {
  double start = 0, end = 0, share = 0;
  float products = 0;
};

/// Something in [start, end) beside which kernels take longer.
struct Window {
  double start = 0, end = 0;
  Beside beside;
};

double lost(const Kernels& kernels, const Window& window) {
  return kernels.share * slowed(kernels.start, kernels.end, window.start, window.end,
                                window.beside.of(kernels.products));
}

struct Stage {
  const StageSetup* setup = nullptr;
  Clocks own{};
  Clocks* clocks = nullptr;
  std::vector<PipelineAction> actions;
  size_t next = 0;
  int at = 0;  ///< in the action: 0 not begun, 1 waits for its input, 2 waits to send
  std::array<Lane, 2> in, out;
  std::array<std::deque<Transfer*>, 2> sent;
  int64_t reduced = 0;  ///< gradients of this block and higher ones are being reduced
  StageResult result;
  MemoryChange held;  ///< beside what stays all along
  PortUse reducing;   ///< what the latest reductions of a recorded stage use
  /// The latest pass over a chunk or block, and transfers between stages that may go on after it.
  Kernels latest;
  std::deque<Window> passing;
  double StepParts::*phase = &StepParts::forward;  ///< of the latest

  double& compute() { return (*clocks)[kComputeClock]; }
  double& host() { return (*clocks)[kHostClock]; }

  void apply(const Segment& segment) {
    const double start = compute();
    segment.apply(*clocks);
    result.parts += segment.parts;
    result.host_syncs += segment.host_syncs;
    note(segment, start);
  }
  /// The segment is what compute did since `start`; beside transfers it takes longer.
  void note(const Segment& segment, double start, bool beside_collectives = false) {
    const double end = compute();
    latest = {};
    if (segment.busy > 0 && end > start) {
      latest = {start, end, std::min(1.0, segment.busy / (end - start)), segment.products};
      phase = segment.parts.backward > 0 ? &StepParts::backward : &StepParts::forward;
      for (const Window& window : passing) note(window);
      for (size_t c = kDispatchClock + 1; beside_collectives && c < kClocks; ++c)
        note(window(c, start));
    }
    while (!passing.empty() && passing.front().end <= end) passing.pop_front();
  }
  /// Beside it the latest kernels take longer. Where they wait for an exchange, what they lost is
  /// lost in that wait, as on the fluid network, which knows of it when the window ends.
  void note(const Window& window) { slow(latest.share * moetwin::lost(latest, window)); }
  /// A transfer of this stage's between others.
  void pass(const Window& window) {
    note(window);
    if (window.end > latest.end) passing.push_back({latest.end, window.end, window.beside});
  }
  /// Kernels have taken that much longer.
  void slow(double seconds) {
    compute() += seconds;
    result.parts[Part::compute] += seconds;
    result.parts.*phase += seconds;
  }
  double lost_to(size_t clock, double start, double seconds, const PortUse& ports) const {
    if (setup->program) return setup->program->device().lost_to(clock, start, seconds, ports);
    return std::clamp((*clocks)[clock] - start, 0.0, seconds) * ports.shared_with(reducing);
  }
  /// What an exchange from `start` on loses to reductions and gathers that are under way.
  double lost(double start, double seconds, const PortUse& ports) const {
    double lost = 0;
    for (size_t c = kDispatchClock + 1; c < kClocks; ++c) lost += lost_to(c, start, seconds, ports);
    return lost;
  }
  /// A piece of a block beside reductions and gathers.
  void apply_beside(const Segment& segment) {
    const double start = compute();
    segment.apply(*clocks);
    double late = 0;
    for (const Exchange& e : segment.exchanges) {
      const double at = start + e.start + late;
      for (size_t c = kDispatchClock + 1; c < kClocks; ++c) {
        const double more = lost_to(c, at, e.seconds, e.ports);
        late += more;
        if (setup->program)
          setup->program->device().delay(c, at, more);
        else
          (*clocks)[c] += more;
      }
    }
    for (size_t c = 0; c <= kDispatchClock; ++c) (*clocks)[c] += late;
    result.parts[Part::other_communication] += late;
    note(segment, start, true);
  }
  /// What goes on on a stream from `start` on.
  Window window(size_t clock, double start) const {
    const double end = (*clocks)[clock];
    if (!setup->program) return {start, end, reducing.beside};
    const SoloBackend::Busy& busy = setup->program->device().busy(clock);
    return {busy.start, end, busy.use.beside};
  }
  /// Compute stands still until then.
  void wait_until(double time, Part part) {
    if (time <= compute()) return;
    result.parts[part] += time - compute();
    compute() = time;
  }
  /// What the program does, with its time on compute counted as `part`.
  template <class Work>
  void drive(Part part, const Work& work) {
    const double before = compute();
    work();
    result.parts[part] += compute() - before;
  }
  void hold(const MemoryChange& change) {
    const ClassBytes& stays =
        setup->program ? setup->program->memory().bytes : setup->record->memory;
    const int64_t peak = total(stays) + total(held.after) + total(change.peak);
    if (peak > result.peak_bytes) {
      result.peak_bytes = peak;
      for (size_t c = 0; c < stays.size(); ++c)
        result.classes[c] = stays[c] + held.after[c] + change.peak[c];
    }
    for (size_t c = 0; c < stays.size(); ++c) held.after[c] += change.after[c];
    result.kept_bytes =
        std::max(result.kept_bytes, held.after[static_cast<size_t>(MemoryClass::activations)]);
  }
  void hold(int64_t bytes) {
    MemoryChange change;
    const auto c = static_cast<size_t>(MemoryClass::activations);
    change.after[c] = bytes;
    change.peak[c] = std::max<int64_t>(bytes, 0);
    hold(change);
  }
};

enum Way { activations, gradients };
Way way_of(const PipelineAction& action) {
  return action.work == PipelineWork::forward ? activations : gradients;
}

class Composition {
 public:
  explicit Composition(const ComposeSetup& setup)
      : setup_(setup),
        stages_(setup.stages.size()),
        virtual_(static_cast<int64_t>(stages_.size()) * setup.virtual_chunks) {
    for (size_t s = 0; s < stages_.size(); ++s) {
      Stage& stage = stages_[s];
      stage.setup = &setup.stages[s];
      stage.clocks = stage.setup->program ? &stage.setup->program->device().clocks() : &stage.own;
    }
  }

  /// Duration of the step, between the ends of the latest stages.
  double step() {
    const double start = latest();
    for (Stage& stage : stages_) stage.result.parts = {}, stage.result.host_syncs = 0;
    run_micro_batches();
    for (Stage& stage : stages_) finish(stage);
    // The two stages with the tied embedding sum its gradients together.
    double tied = 0;
    for (Stage& stage : stages_)
      if (stage.setup->tied) tied = std::max(tied, stage.compute());
    for (Stage& stage : stages_)
      if (stage.setup->tied) stage.wait_until(tied, Part::bubble);
    for (Stage& stage : stages_) drive(stage, &StageRecord::measure, &StageProgram::measure);
    double all = 0;
    for (Stage& stage : stages_) all = std::max(all, stage.compute());
    for (Stage& stage : stages_) {
      stage.wait_until(all, Part::bubble);
      drive(stage, &StageRecord::update, &StageProgram::update);
      drive(stage, &StageRecord::report, &StageProgram::report);
      const auto& peak = stage.setup->program ? stage.setup->program->memory().bytes_at_peak
                                              : stage.setup->record->peak;
      if (total(peak) > stage.result.peak_bytes) {
        stage.result.peak_bytes = total(peak);
        stage.result.classes = peak;
      }
    }
    return latest() - start;
  }

  StepResult result_of_step() {
    StepResult result;
    for (const Stage& stage : stages_)
      if (stage.setup->program) stage.setup->program->device().cut();
    result.seconds = step();
    for (Stage& stage : stages_) {
      stage.result.parts.fit(result.seconds);
      if (stage.setup->program) stage.result.sent = stage.setup->program->device().cut().sent;
      stage.result.lasting =
          stage.setup->program ? stage.setup->program->memory().bytes : stage.setup->record->memory;
      result.stages.push_back(stage.result);
    }
    return result;
  }

  /// The order of the stages' actions for a step of that many micro-batches.
  void plan(int64_t micro_batches) {
    micro_batches_ = micro_batches;
    for (Stage& stage : stages_) {
      PipelineShape shape;
      shape.stages = static_cast<int64_t>(stages_.size());
      shape.stage = &stage - stages_.data();
      shape.micro_batches = micro_batches;
      shape.chunks = setup_.virtual_chunks;
      stage.actions = pipeline_actions(setup_.schedule, shape);
    }
  }

 private:
  double latest() {
    double time = 0;
    for (Stage& stage : stages_) time = std::max({time, stage.compute(), stage.host()});
    return time;
  }
  void drive(Stage& stage, Segment StageRecord::*segment, void (StageProgram::*work)()) {
    if (stage.setup->program)
      stage.drive(Part::compute, [&] { (stage.setup->program->*work)(); });
    else
      stage.apply(stage.setup->record->*segment);
  }
  void finish(Stage& stage) {
    stage.drive(Part::other_communication, [&] {
      if (stage.setup->program)
        stage.setup->program->finish();
      else
        stage.setup->record->finish.apply(*stage.clocks);
    });
  }

  int64_t virtual_stage(const Stage& stage, const PipelineAction& action) const {
    return action.chunk * static_cast<int64_t>(stages_.size()) + (&stage - stages_.data());
  }
  bool needs(const Stage& stage, const PipelineAction& a) const {
    if (a.work == PipelineWork::backward_weight) return false;
    const int64_t v = virtual_stage(stage, a);
    return a.work == PipelineWork::forward ? v > 0 : v + 1 < virtual_;
  }
  bool gives(const Stage& stage, const PipelineAction& a) const {
    if (a.work == PipelineWork::backward_weight) return false;
    const int64_t v = virtual_stage(stage, a);
    return a.work == PipelineWork::forward ? v + 1 < virtual_ : v > 0;
  }
  /// Of what arrives at virtual stage v.
  Transfer& transfer(Way way, int64_t v, int64_t micro_batch) {
    return transfers_[static_cast<size_t>((micro_batch * virtual_ + v) * 2 +
                                          static_cast<int64_t>(way))];
  }

  void run_micro_batches() {
    transfers_.assign(static_cast<size_t>(micro_batches_ * virtual_ * 2), {});
    for (Stage& stage : stages_) {
      stage.next = 0;
      stage.at = 0;
      stage.reduced = std::numeric_limits<int64_t>::max();
      stage.latest = {};
      stage.passing.clear();
      for (auto* lanes : {&stage.in, &stage.out})
        for (Lane& lane : *lanes) lane = {};
      drive(stage, &StageRecord::begin, &StageProgram::begin);
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (Stage& stage : stages_)
        while (advance(stage)) moved = true;
    }
    for (Stage& stage : stages_) {
      require(stage.next == stage.actions.size(), "a schedule comes to its end");
      for (std::deque<Transfer*>& sent : stage.sent) {
        for (const Transfer* t : sent) {
          stage.wait_until(t->done, Part::bubble);
          stage.hold(-setup_.hidden_bytes);
        }
        sent.clear();
      }
    }
  }

  void expect(Stage& stage, const PipelineAction& action) {
    if (!needs(stage, action)) return;
    const Way way = way_of(action);
    Transfer& t = transfer(way, virtual_stage(stage, action), action.micro_batch);
    if (t.wanted >= 0) return;
    stage.host() += setup_.launch_seconds;
    t.wanted = std::max(stage.compute(), stage.host());
    stage.in[way].order.push_back(&t);
    stage.hold(setup_.hidden_bytes);
  }

  /// Lets transfers happen that both sides are ready for.
  void settle(Way way, Stage& sender, Stage& receiver) {
    Lane &out = sender.out[way], &in = receiver.in[way];
    while (out.next < out.order.size() && in.next < in.order.size() &&
           out.order[out.next] == in.order[in.next]) {
      Transfer& t = *out.order[out.next];
      const double start = std::max({t.given, t.wanted, out.end, in.end});
      t.done = start + t.seconds +
               std::max(sender.lost(start, t.seconds, setup_.stage_ports),
                        receiver.lost(start, t.seconds, setup_.stage_ports));
      out.end = in.end = t.done;
      ++out.next, ++in.next;
      if (t.done <= start) continue;
      const Beside& beside = setup_.stage_ports.beside;
      sender.pass({start, t.done, beside});
      // What arrives is not read from the memory, as the fluid network has it.
      receiver.pass({start, t.done, {beside.products, 0}});
    }
  }
  Stage& neighbour(const Stage& stage, int by) {
    const auto p = static_cast<int64_t>(stages_.size());
    return stages_[static_cast<size_t>((&stage - stages_.data() + by + p) % p)];
  }
  void settle_around(Stage& stage) {
    settle(activations, neighbour(stage, -1), stage);
    settle(activations, stage, neighbour(stage, 1));
    settle(gradients, neighbour(stage, 1), stage);
    settle(gradients, stage, neighbour(stage, -1));
  }

  /// One thing that the stage can do now; false: nothing.
  bool advance(Stage& stage) {
    if (stage.next == stage.actions.size()) return false;
    const PipelineAction& action = stage.actions[stage.next];
    const Way way = way_of(action);
    if (stage.at == 0) {
      expect(stage, action);
      if (stage.next + 1 < stage.actions.size()) expect(stage, stage.actions[stage.next + 1]);
      stage.at = 1;
      return true;
    }
    settle_around(stage);
    if (stage.at == 1) {
      if (needs(stage, action)) {
        const Transfer& t = transfer(way, virtual_stage(stage, action), action.micro_batch);
        if (t.done < 0) return false;
        stage.wait_until(t.done, Part::bubble);
      }
      run(stage, action);
      stage.at = 2;
      return true;
    }
    if (gives(stage, action)) {
      std::deque<Transfer*>& sent = stage.sent[way];
      if (sent.size() == kSentAtOnce) {
        if (sent.front()->done < 0) return false;
        stage.wait_until(sent.front()->done, Part::bubble);
        sent.pop_front();
        stage.hold(-setup_.hidden_bytes);
      }
      const int64_t v = virtual_stage(stage, action);
      const auto index = static_cast<size_t>(&stage - stages_.data());
      Transfer& t = transfer(way, way == activations ? v + 1 : v - 1, action.micro_batch);
      stage.host() += setup_.launch_seconds;
      t.given = std::max(stage.compute(), stage.host());
      t.seconds = way == activations
                      ? setup_.forward_seconds[index]
                      : setup_.backward_seconds[(index + stages_.size() - 1) % stages_.size()];
      stage.out[way].order.push_back(&t);
      sent.push_back(&t);
    }
    ++stage.next;
    stage.at = 0;
    return true;
  }

  void run(Stage& stage, const PipelineAction& action) {
    const ChunkPasses& chunk = *stage.setup->chunks[static_cast<size_t>(action.chunk)];
    const bool last = action.micro_batch + 1 == micro_batches_;
    if (setup_.passes_wait) stage.host() = std::max(stage.host(), stage.compute());
    if (stages_.size() > 1) stage.host() += setup_.pass_seconds;
    StageProgram* program = stage.setup->program;
    switch (action.work) {
      case PipelineWork::forward:
        if (!program) {
          stage.apply(chunk.forward);
          stage.hold(chunk.forward_memory);
          return;
        }
        if (chunk.data) one(stage, *chunk.data, 0);
        for (const PlacedBlock& b : chunk.blocks) {
          hook(stage, [&](Context& c) { c.before_forward(b.block); });
          one(stage, b.passes->forward, b.block);
          if (!chunk.tied || b.block > 0)
            hook(stage, [&](Context& c) { c.after_forward(b.block, true); });
        }
        if (chunk.tied) hook(stage, [&](Context& c) { c.after_forward(0, true); });
        return;
      case PipelineWork::backward:
        backward(stage, chunk, last, true);
        break;
      case PipelineWork::backward_input:
        backward(stage, chunk, false, false);
        return;
      case PipelineWork::backward_weight:
        weights(stage, chunk, last);
        break;
    }
  }

  void backward(Stage& stage, const ChunkPasses& chunk, bool last, bool whole) {
    StageProgram* program = stage.setup->program;
    if (!program && !last) {
      stage.apply(chunk.backward);
      stage.hold(chunk.backward_memory);
      return;
    }
    if (chunk.tied) hook(stage, [&](Context& c) { c.before_backward(0); });
    for (size_t i = chunk.blocks.size(); i-- > 0;) {
      const PlacedBlock& b = chunk.blocks[i];
      hook(stage, [&](Context& c) { c.before_backward(b.block, b.block > 0); });
      one(stage, b.passes->backward, b.block);
      hook(stage, [&](Context& c) {
        whole ? c.after_backward(b.block) : c.after_backward_input(b.block);
      });
      if (last) block_done(stage, b.block);
    }
  }
  void weights(Stage& stage, const ChunkPasses& chunk, bool last) {
    if (!stage.setup->program) {
      stage.apply(chunk.weights);
      stage.hold(chunk.weights_memory);
    } else {
      for (size_t i = chunk.blocks.size(); i-- > 0;)
        one(stage, chunk.blocks[i].passes->weights, chunk.blocks[i].block);
      for (size_t i = chunk.blocks.size(); i-- > 0;)
        hook(stage, [&](Context& c) { c.after_backward(chunk.blocks[i].block); });
    }
    if (last && !chunk.blocks.empty()) block_done(stage, chunk.blocks.front().block);
  }
  void block_done(Stage& stage, int64_t block) {
    if (stage.setup->program) return stage.setup->program->block_done(block);
    // All reductions that wait for this block or a higher one.
    const auto& waiting = stage.setup->record->block_done;
    for (auto it = waiting.lower_bound(stage.reduced); it != waiting.begin();) {
      if ((--it)->first < block) break;
      it->second.apply(*stage.clocks);
      stage.reducing = it->second.background;
      stage.reduced = it->first;
    }
  }
  template <class Work>
  void hook(Stage& stage, const Work& work) {
    StageProgram* program = stage.setup->program;
    if (!program) return;
    stage.drive(Part::other_communication, [&] { work(program->context()); });
  }
  /// A pass of one block, with the program asked for experts' parameters where they are needed.
  void one(Stage& stage, const Pass& pass, int64_t block) {
    if (stage.setup->program && pass.pieces.size() > 1) {
      for (size_t i = 0; i < pass.pieces.size(); ++i) {
        if (i > 0) hook(stage, [&](Context& c) { c.before_experts(block); });
        stage.apply_beside(pass.pieces[i]);
      }
    } else {
      stage.apply_beside(pass.whole);
    }
    stage.result.parts += pass.whole.parts;
    stage.result.host_syncs += pass.whole.host_syncs;
    stage.hold(pass.memory);
  }

  const ComposeSetup& setup_;
  std::vector<Stage> stages_;
  int64_t virtual_;
  int64_t micro_batches_ = 0;
  std::vector<Transfer> transfers_;
};

/// What comes after `few` and `more` micro-batches, as many `times` the difference again. `holds`:
/// all of them are in flight at once.
StepResult go_on(const StepResult& few, const StepResult& more, double times, bool holds) {
  const auto whole = [&](int64_t& value, int64_t before) {
    value += std::llround(times * static_cast<double>(value - before));
  };
  StepResult result = more;
  result.seconds += times * (more.seconds - few.seconds);
  for (size_t s = 0; s < result.stages.size(); ++s) {
    StageResult& stage = result.stages[s];
    const StageResult& before = few.stages[s];
    StepParts added = before.parts / -1.0;
    added += stage.parts;
    stage.parts += added / (1 / times);
    stage.parts.fit(result.seconds);
    whole(stage.host_syncs, before.host_syncs);
    if (holds) {
      whole(stage.peak_bytes, before.peak_bytes);
      whole(stage.kept_bytes, before.kept_bytes);
      for (size_t c = 0; c < stage.classes.size(); ++c) whole(stage.classes[c], before.classes[c]);
    }
    for (const Sent& sent : more.stages[s].sent) add_sent(stage.sent, sent, times);
    for (const Sent& sent : before.sent) add_sent(stage.sent, sent, -times);
  }
  return result;
}

}  // namespace

StepResult compose(const ComposeSetup& setup, bool exactly) {
  const auto stages = static_cast<int64_t>(setup.stages.size());
  // Whole rounds of the stages, as interleaving needs them, beyond their filling.
  const int64_t wanted = setup.micro_batches, few = std::max<int64_t>(3, 2 * stages),
                more = few + std::max<int64_t>(2, stages);
  const bool driven = std::any_of(setup.stages.begin(), setup.stages.end(),
                                  [](const StageSetup& stage) { return stage.program; });
  exactly = exactly || !driven || wanted <= few + more;
  Composition composition(setup);
  if (stages > 1) {
    // Stages that end apart begin the next step apart.
    composition.plan(std::min(wanted, stages));
    composition.step();
  }
  composition.plan(exactly ? wanted : few);
  const StepResult first = composition.result_of_step();
  if (exactly) return first;
  composition.plan(more);
  return go_on(first, composition.result_of_step(),
               static_cast<double>(wanted - more) / static_cast<double>(more - few),
               setup.schedule == "gpipe");
}

}  // namespace moetwin
