#include "core/nn/ffn.h"

#include "core/ops/activation.h"

namespace moetwin {

Ffn::Ffn(ParameterSet& parameters, const FfnConfig& config, const TensorParallel& tp)
    : config_(config), width_(config.width / tp.size()) {
  std::vector<int64_t> parts{config.width};
  if (config.activation == "swiglu") parts.push_back(config.width);  // gate | up
  up_ =
      Linear(parameters,
             {config.name + ".up", config.hidden, static_cast<int64_t>(parts.size()) * config.width,
              config.bias, config.init_std, config.block, LinearSplit::columns, parts},
             tp);
  down_ = Linear(parameters,
                 {config.name + ".down", config.width, config.hidden, config.bias,
                  config.output_init_std, config.block, LinearSplit::rows},
                 tp);
}

Tensor Ffn::forward(Context& context, const Tensor& x, Saved& saved) const {
  forward_hidden(context, x, saved);
  return down_.forward(context, saved.hidden);
}

void Ffn::forward_hidden(Context& context, const Tensor& x, Saved& saved) const {
  saved.x = x;
  if (config_.activation == "swiglu") {
    saved.pre = up_.forward(context, x);
    saved.hidden = context.activation({x.shape[0], width_}, "ffn hidden");
    saved.kept = context.launch_keeping(swiglu(saved.pre, saved.hidden));
  } else {
    saved.pre = context.activation({x.shape[0], width_}, "ffn before activation");
    saved.hidden = up_.forward(
        context, x, config_.activation == "gelu_tanh" ? Epilogue::gelu_tanh : Epilogue::gelu,
        saved.pre);
  }
}

void Ffn::remake(Context& context, const Tensor& x, Saved& saved) const {
  const int64_t tokens = x.shape[0];
  saved.x = x;
  saved.hidden = context.activation({tokens, width_}, "ffn hidden");
  if (config_.activation != "swiglu") {
    saved.pre = context.activation({tokens, width_}, "ffn before activation");
    GeluAttr attr;
    attr.tanh_form = config_.activation == "gelu_tanh";
    context.launch(gelu(saved.pre, saved.hidden, attr));
    return;
  }
  saved.pre = context.activation({tokens, 2 * width_}, "linear output");
  up_.forward_columns(context, x,
                      saved.pre.reshaped({2 * tokens * width_})
                          .slice(0, {tokens * width_})
                          .reshaped({tokens, width_}));
  saved.kept = context.launch_keeping(swiglu(saved.pre, saved.hidden));
}

Tensor Ffn::backward(Context& context, const Saved& saved, const Tensor& dy) const {
  Tensor d_hidden = down_.backward(context, saved.hidden, dy);
  if (config_.activation == "swiglu") {
    Tensor d_pre = context.activation(saved.pre.shape, "ffn gradient before activation");
    context.launch(swiglu_backward(saved.pre, d_hidden, d_pre));
    return up_.backward(context, saved.x, d_pre);
  }
  GeluAttr attr;
  attr.tanh_form = config_.activation == "gelu_tanh";
  context.launch(gelu_backward(saved.pre, d_hidden, d_hidden, attr));
  return up_.backward(context, saved.x, d_hidden);
}

}  // namespace moetwin
