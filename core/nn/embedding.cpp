#include "core/nn/embedding.h"

#include "core/ops/gemm.h"
#include "core/ops/loss.h"

namespace moetwin {

namespace {
Parameter& add_table(ParameterSet& parameters, const std::string& name, int64_t rows,
                     int64_t hidden, double init_std, int64_t block) {
  Parameter p;
  p.name = name;
  p.kind = ParameterKind::embedding;
  p.block = block;
  p.shape = {rows, hidden};
  p.global = p.local = {1, rows, hidden};
  p.init_std = init_std;
  return parameters.add(std::move(p));
}
}  // namespace

Embedding::Embedding(ParameterSet& parameters, const ModelConfig& model, int64_t block)
    : hidden_(model.hidden_size) {
  attr_.sequence_length = model.sequence_length;
  attr_.offset = model.embedding_offset;
  table_ =
      &add_table(parameters, "embedding.table", model.vocab_size, hidden_, model.init_std, block);
  if (model.position_embedding == "learned")
    positions_ = &add_table(parameters, "embedding.positions", model.sequence_length, hidden_,
                            model.init_std, block);
}

Tensor Embedding::forward(Context& context, const Tensor& ids) const {
  Tensor out = context.activation({ids.shape[0], hidden_}, "embedding output");
  context.launch(embed(ids, table_->value, positions_ ? positions_->value : Tensor{}, out, attr_));
  return out;
}

void Embedding::backward(Context& context, const Tensor& ids, const Tensor& d_out) const {
  context.launch(embed_backward(ids, d_out, table_->gradient,
                                positions_ ? positions_->gradient : Tensor{}, attr_));
}

Head::Head(ParameterSet& parameters, const ModelConfig& model, Parameter* tied, int64_t block)
    : norm_(parameters, model, "head.norm", block),
      hidden_(model.hidden_size),
      vocab_(model.vocab_size),
      table_(tied ? tied
                  : &add_table(parameters, "head.table", model.vocab_size, hidden_, model.init_std,
                               block)) {}

void Head::forward(Context& context, const MicroBatch& batch, const Tensor& x,
                   const Tensor& targets, const Tensor& sums, Saved& saved) const {
  saved.normed = norm_.forward(context, x, saved.norm);
  Tensor logits = context.activation({x.shape[0], vocab_}, "logits");
  GemmAttr attr;
  attr.transpose_b = true;
  context.launch(gemm(saved.normed, table_->value, {}, logits, {}, attr));
  CrossEntropyAttr loss;
  loss.gradient_scale = batch.backward ? batch.gradient_scale * batch.loss_scale : 0;
  context.launch(cross_entropy(logits, targets, sums, loss));
  if (batch.backward) saved.d_logits = logits;
}

Tensor Head::backward(Context& context, Saved& saved) const {
  Tensor d_normed = context.activation(saved.normed.shape, "head input gradient");
  context.launch(gemm(saved.d_logits, table_->value, {}, d_normed, {}, {}));
  GemmAttr weight;
  weight.transpose_a = true;
  weight.accumulate = true;
  context.launch(gemm(saved.d_logits, saved.normed, {}, table_->gradient, {}, weight));
  saved.d_logits = {};
  return norm_.backward(context, saved.norm, d_normed);
}

}  // namespace moetwin
