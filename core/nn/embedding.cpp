#include "core/nn/embedding.h"

#include <algorithm>

#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"

namespace moetwin {

namespace {

/// This rank's classes of a vocabulary of v.
VocabPartAttr part_of(int64_t v, const TensorParallel& tp) {
  const int64_t rows = (v + tp.size() - 1) / tp.size();
  VocabPartAttr part;
  part.vocabulary = v;
  part.first = std::min(tp.rank() * rows, v);
  part.classes = std::min(rows, v - part.first);
  return part;
}

/// A [rows,H] table, or this rank's ceil(rows / TP) rows of one that is split.
Parameter& add_table(ParameterSet& parameters, const std::string& name, int64_t rows,
                     int64_t hidden, double init_std, int64_t block, const TensorParallel& tp,
                     bool shared = false) {
  const VocabPartAttr part = part_of(rows, tp);
  Parameter p;
  p.name = name;
  p.kind = ParameterKind::embedding;
  p.block = block;
  p.tensor = tp.split();
  p.shape = {(rows + tp.size() - 1) / tp.size(), hidden};
  p.global = {1, rows, hidden};
  p.offset = {0, part.first, 0};
  p.local = {1, part.classes, hidden};
  p.init_std = init_std;
  if (shared) p.pipeline = AxisUse::summed;
  return parameters.add(std::move(p));
}
}  // namespace

Embedding::Embedding(ParameterSet& parameters, const ModelConfig& model, int64_t block,
                     const TensorParallel& tp, bool shared, int64_t parts)
    : tp_(tp), hidden_(model.hidden_size) {
  attr_.sequence_length = model.sequence_length / parts;
  // What is added to a row is added once, to the sum over the parts.
  attr_.offset = tp.rank() == 0 ? model.embedding_offset : 0;
  attr_.first_row = part_of(model.vocab_size, tp).first;
  attr_.vocabulary = model.vocab_size;
  table_ = &add_table(parameters, "embedding.table", model.vocab_size, hidden_, model.init_std,
                      block, tp, shared);
  // Whole on every rank, which all see the gradient of all tokens.
  if (model.position_embedding == "learned")
    positions_ = &add_table(parameters, "embedding.positions", model.sequence_length, hidden_,
                            model.init_std, block, {});
}

Tensor Embedding::of_part(const Tensor& positions) const {
  const Shape part = {attr_.sequence_length, hidden_};
  return positions.reshaped({positions.elements()}).slice(0, {part.elements()}).reshaped(part);
}

Tensor Embedding::forward(Context& context, const Tensor& ids) const {
  Tensor out = context.activation({ids.shape[0], hidden_}, "embedding output");
  // A row comes from the rank that has it; positions are added to the sum once.
  const bool adds_positions = positions_ && tp_.rank() == 0;
  context.launch(embed(ids, table_->value, adds_positions ? of_part(positions_->value) : Tensor{},
                       out, attr_));
  return tp_.leave(context, out);
}

void Embedding::backward(Context& context, const Tensor& ids, const Tensor& d_out) const {
  context.launch_parameter_gradient(
      embed_backward(ids, tp_.enter(context, d_out), table_->gradient,
                     positions_ ? of_part(positions_->gradient) : Tensor{}, attr_));
}

Head::Head(ParameterSet& parameters, const ModelConfig& model, Parameter* tied, int64_t block,
           const TensorParallel& tp)
    : tp_(tp),
      norm_(parameters, model, "head.norm", block, tp.between()),
      part_(part_of(model.vocab_size, tp)),
      table_(tied ? tied
                  : &add_table(parameters, model.tie_embeddings ? "embedding.table" : "head.table",
                               model.vocab_size, model.hidden_size, model.init_std, block, tp,
                               model.tie_embeddings)) {}

void Head::forward(Context& context, const MicroBatch& batch, const Tensor& x,
                   const Tensor& targets, const Tensor& sums, Saved& saved) const {
  saved.normed = norm_.forward(context, x, saved.norm);
  const Tensor all = tp_.enter(context, saved.normed);
  Tensor logits = context.activation({all.shape[0], table_->shape[0]}, "logits");
  GemmAttr attr;
  attr.transpose_b = true;
  context.launch(gemm(all, table_->value, {}, logits, {}, attr));
  if (batch.watch && batch.watch->keep_logits && !batch.backward) {
    const Tensor kept = context.activation(logits.shape, "kept logits");
    context.launch(copy(logits, kept));
    batch.watch->logits.push_back(kept);
  }
  loss(context, batch, logits, targets, sums);
  if (batch.backward) saved.d_logits = logits;
}

void Head::loss(Context& context, const MicroBatch& batch, const Tensor& logits,
                const Tensor& targets, const Tensor& sums) const {
  const double gradient_scale = batch.backward ? batch.gradient_scale * batch.loss_scale : 0;
  if (tp_.size() == 1) {
    CrossEntropyAttr attr;
    attr.gradient_scale = gradient_scale;
    const Tensor kept = context.launch_keeping(cross_entropy(logits, targets, sums, attr));
    return;
  }
  const Tensor mine = context.memory.allocate({3, logits.shape[0]}, context.real(),
                                              MemoryClass::activations, "vocabulary statistics");
  context.launch(vocab_statistics(logits, targets, mine, part_));
  VocabCrossEntropyAttr attr;
  attr.part = part_;
  attr.gradient_scale = gradient_scale;
  attr.parts = tp_.size();
  Tensor counted = sums;
  if (tp_.rank() != 0) {  // every rank of the group has the same loss; it counts once
    counted = context.memory.allocate({2}, context.real(), MemoryClass::activations,
                                      "sums that do not count");
    context.launch(fill(counted, {}));
  }
  const Tensor statistics = tp_.gather(context, mine, "vocabulary statistics");
  const Tensor kept =
      context.launch_keeping(vocab_cross_entropy(logits, targets, statistics, counted, attr));
}

Tensor Head::backward(Context& context, Saved& saved) const {
  const Tensor all = tp_.enter(context, saved.normed);
  Tensor d_normed = context.activation(all.shape, "head input gradient");
  context.launch(gemm(saved.d_logits, table_->value, {}, d_normed, {}, {}));
  GemmAttr weight;
  weight.transpose_a = true;
  weight.accumulate = true;
  context.launch_parameter_gradient(gemm(saved.d_logits, all, {}, table_->gradient, {}, weight));
  saved.d_logits = {};
  return norm_.backward(context, saved.norm, tp_.leave(context, d_normed));
}

}  // namespace moetwin
