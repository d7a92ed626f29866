#include "core/train/model.h"

namespace moetwin {

std::vector<int64_t> Model::moe_layers(const ModelConfig& model) {
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < model.num_layers; ++i)
    if (model.is_moe_layer(i)) layers.push_back(i);
  return layers;
}

Model::Model(ParameterSet& parameters, const LayerSetup& setup)
    : tied_(setup.scenario.model_config.tie_embeddings), tp_(setup.tp) {
  const ModelConfig& model = setup.scenario.model_config;
  embedding_ = Embedding(parameters, model, 0, tp_);
  embedding_dropout_ = Dropout(model.dropout, model.num_layers, DropoutSite::embedding);
  layers_.reserve(static_cast<size_t>(model.num_layers));
  for (int64_t i = 0; i < model.num_layers; ++i) layers_.emplace_back(parameters, setup, i);
  head_ = Head(parameters, model, model.tie_embeddings ? &embedding_.table() : nullptr,
               model.num_layers + 1, tp_);
}

void Model::forward(Context& context, const MicroBatch& batch, const Tensor& ids,
                    const Tensor& targets, const Tensor& sums, Saved& saved) {
  saved.ids = ids;
  saved.layers.resize(layers_.size());
  const int64_t head = static_cast<int64_t>(layers_.size()) + 1;
  context.before_forward(0);
  Tensor x = embedding_.forward(context, ids);
  if (!tied_) context.after_forward(0, batch.backward);
  embedding_dropout_.apply(context, batch, tp_.first_of(x, batch.tokens()), x);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const int64_t block = static_cast<int64_t>(i) + 1;
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
  context.before_forward(head);
  if (sums.defined()) head_.forward(context, batch, x, targets, sums, saved.head);
  context.after_forward(head, batch.backward);
  if (tied_) context.after_forward(0, batch.backward);
}

void Model::backward(Context& context, const MicroBatch& batch, Saved& saved,
                     const std::function<void(int64_t)>& block_done) {
  const int64_t head = static_cast<int64_t>(layers_.size()) + 1;
  const auto done = [&](int64_t block) {
    context.after_backward(block);
    block_done(block);
  };
  if (tied_) context.before_backward(0);
  context.before_backward(head);
  Tensor dx = head_.backward(context, saved.head);
  done(head);
  for (size_t i = layers_.size(); i-- > 0;) {
    const int64_t block = static_cast<int64_t>(i) + 1;
    context.before_backward(block);
    dx = layers_[i].backward(context, batch, dx, saved.layers[i]);
    saved.layers[i] = {};
    done(block);
  }
  context.before_backward(0, false);
  embedding_dropout_.apply(context, batch, tp_.first_of(dx, batch.tokens()), dx);
  embedding_.backward(context, saved.ids, dx);
  done(0);
}

}  // namespace moetwin
