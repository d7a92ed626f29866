#include "core/train/model.h"

namespace moetwin {

ModelChunk::ModelChunk(ParameterSet& parameters, const LayerSetup& setup, LayerRange range,
                       bool first, bool last)
    : range_(range),
      tied_(first && last && setup.scenario.model_config.tie_embeddings),
      tp_(setup.tp) {
  const ModelConfig& model = setup.scenario.model_config;
  const bool shared = model.tie_embeddings && !(first && last);
  if (first) {
    embedding_.emplace(parameters, model, 0, tp_, shared, setup.grid.cp());
    embedding_dropout_ = Dropout(model.dropout, model.num_layers, DropoutSite::embedding);
  }
  layers_.reserve(static_cast<size_t>(range.count));
  for (int64_t i = range.first; i < range.end(); ++i) layers_.emplace_back(parameters, setup, i);
  if (last)
    head_.emplace(parameters, model, first && model.tie_embeddings ? &embedding_->table() : nullptr,
                  model.num_layers + 1, tp_);
}

Tensor ModelChunk::forward(Context& context, const MicroBatch& batch, const ChunkInput& input,
                           const Tensor& sums, Saved& saved) {
  saved.ids = input.ids;
  saved.layers.resize(layers_.size());
  const int64_t head = range_.end() + 1;
  Tensor x = input.hidden;
  if (embedding_) {
    context.before_forward(0);
    x = embedding_->forward(context, input.ids);
    if (!tied_) context.after_forward(0, batch.backward);
    embedding_dropout_.apply(context, batch, tp_.first_of(x, batch.tokens()), x);
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    const int64_t block = range_.first + static_cast<int64_t>(i) + 1;
    context.before_forward(block);
    x = layers_[i].forward(context, batch, x, saved.layers[i]);
    context.after_forward(block, batch.backward);
    // Evaluation keeps the routing counts alone.
    if (!batch.backward) {
      DispatchCounts counts = std::move(saved.layers[i].moe.dispatch.counts);
      saved.layers[i] = {};
      saved.layers[i].moe.dispatch.counts = std::move(counts);
    }
  }
  if (!head_) return x;
  context.before_forward(head);
  if (sums.defined()) head_->forward(context, batch, x, input.targets, sums, saved.head);
  context.after_forward(head, batch.backward);
  if (tied_) context.after_forward(0, batch.backward);
  return {};
}

Tensor ModelChunk::backward(Context& context, const MicroBatch& batch, Tensor dy, Saved& saved,
                            const std::function<void(int64_t)>& block_done) {
  const auto done = [&](int64_t block) {
    if (context.later)
      context.after_backward_input(block);
    else
      context.after_backward(block);
    block_done(block);
  };
  if (head_) {
    const int64_t head = range_.end() + 1;
    if (tied_) context.before_backward(0);
    context.before_backward(head);
    dy = head_->backward(context, saved.head);
    done(head);
  }
  for (size_t i = layers_.size(); i-- > 0;) {
    const int64_t block = range_.first + static_cast<int64_t>(i) + 1;
    context.before_backward(block);
    dy = layers_[i].backward(context, batch, dy, saved.layers[i]);
    saved.layers[i] = {};
    done(block);
  }
  if (!embedding_) return dy;
  context.before_backward(0, false);
  embedding_dropout_.apply(context, batch, tp_.first_of(dy, batch.tokens()), dy);
  embedding_->backward(context, saved.ids, dy);
  done(0);
  return {};
}

void ModelChunk::parameter_gradients_done(Context& context) const {
  if (head_) context.after_backward(range_.end() + 1);
  for (int64_t block = range_.end(); block > range_.first; --block) context.after_backward(block);
  if (embedding_) context.after_backward(0);
}

Model::Model(ParameterSet& parameters, const LayerSetup& setup) {
  const DistributedConfig& distributed = setup.scenario.distributed_config;
  const std::vector<LayerRange> ranges =
      rank_layers(setup.scenario.model_config, distributed, setup.at.pp);
  chunks_.reserve(ranges.size());
  for (size_t chunk = 0; chunk < ranges.size(); ++chunk) {
    const int64_t stage =
        static_cast<int64_t>(chunk) * distributed.pipeline_parallel_size + setup.at.pp;
    chunks_.emplace_back(parameters, setup, ranges[chunk], stage == 0,
                         stage + 1 == virtual_stages(distributed));
  }
}

}  // namespace moetwin
