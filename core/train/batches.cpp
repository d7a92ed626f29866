#include "core/train/batches.h"

#include <algorithm>

#include "core/scenario/sizes.h"

namespace moetwin {

Batches::Batches(const Scenario& scenario, const Grid& grid, int64_t ddp, const TokenSource* data)
    : model_(scenario.model_config),
      training_(scenario.training_config),
      data_(scenario.training_config.numerics == "full" ? data : nullptr),
      length_(local_sequence_length(scenario)),
      rank_(ddp / grid.cp()),
      ranks_(grid.batch_ranks()),
      nominal_tokens_(training_.global_batch_size * model_.sequence_length),
      per_step_(training_.global_batch_size / (ranks_ * training_.micro_batch_size)) {
  go_on_from(0, 0);
}

void Batches::go_on_from(int64_t step, int64_t consumed) {
  if (!data_) return;
  order_ = std::make_unique<BatchOrder>(static_cast<uint64_t>(training_.seed),
                                        data_->sequences(Split::train), training_.global_batch_size,
                                        step, consumed);
}

Sequences Batches::validation() const {
  if (!data_) return {};
  return {Split::validation,
          std::min(data_->sequences(Split::validation), training_.validation_sequences),
          [](int64_t i) { return i; }};
}

Sequences Batches::first(int64_t count) const {
  const BatchOrder order(static_cast<uint64_t>(training_.seed), data_->sequences(Split::train),
                         training_.global_batch_size);
  return {Split::train, count, [order](int64_t i) { return order.sequence(1, i); }};
}

int64_t Batches::rounds(const Sequences& sequences) const {
  const int64_t per_round = ranks_ * training_.micro_batch_size;
  return (sequences.count + per_round - 1) / per_round;
}

MicroBatch Batches::training(int64_t step, int64_t index) const {
  MicroBatch batch;
  batch.step = step;
  batch.index = index;
  batch.sequences = training_.micro_batch_size;
  batch.sequence_length = length_;
  batch.first_sequence = (index * ranks_ + rank_) * batch.sequences;
  batch.gradient_scale = 1.0 / static_cast<double>(nominal_tokens_);
  batch.valid_tokens = batch.tokens();
  batch.share = static_cast<double>(batch.valid_tokens) / static_cast<double>(nominal_tokens_);
  return batch;
}

MicroBatch Batches::evaluation(int64_t step, int64_t round, const Sequences& sequences) const {
  MicroBatch batch = training(step, round);
  batch.training = batch.backward = false;
  batch.sequences = std::clamp<int64_t>(sequences.count - batch.first_sequence, 0, batch.sequences);
  return batch;
}

Batches::Tokens Batches::load(Context& context, MicroBatch& batch, const Sequences* sequences,
                              bool ids, bool targets) const {
  const int64_t tokens = batch.tokens(), length = batch.sequence_length;
  Tokens out;
  Tensor both;
  if (ids || targets) {
    both = context.memory.allocate({int64_t{ids} + int64_t{targets}, tokens}, DType::i32,
                                   MemoryClass::activations, "tokens");
    if (ids) out.ids = both.slice(0, {tokens});
    if (targets) out.targets = both.slice(ids ? tokens : 0, {tokens});
  }
  if (!data_) {
    if (both.defined()) context.device.write(both, nullptr, context.streams.compute);
    return out;
  }
  // Every stage counts the valid tokens: losses of its MoE layers are weighted by them.
  std::vector<int32_t> host(static_cast<size_t>(2 * tokens)),
      sequence(static_cast<size_t>(length + 1));
  batch.valid_tokens = 0;
  for (int64_t s = 0; s < batch.sequences; ++s) {
    const int64_t index = batch.first_sequence + s;
    if (sequences)
      data_->read(sequences->split, sequences->number(index), sequence.data());
    else
      data_->read(Split::train, order_->sequence(batch.step, index), sequence.data());
    int32_t* of_ids = host.data() + s * length;
    int32_t* of_targets = of_ids + tokens;
    std::copy(sequence.begin(), sequence.end() - 1, of_ids);
    std::copy(sequence.begin() + 1, sequence.end(), of_targets);
    batch.valid_tokens += length - std::count(of_targets, of_targets + length, -1);
  }
  batch.share = static_cast<double>(batch.valid_tokens) / static_cast<double>(nominal_tokens_);
  if (both.defined())
    context.device.write(both, host.data() + (ids ? 0 : tokens), context.streams.compute);
  return out;
}

}  // namespace moetwin
