// training_config: steps, batch, optimizer, schedules per parameter kind.
#include "core/scenario/key_list.h"

namespace moetwin {
namespace {

template <class Get>
void add_schedule_keys(KeyList& list, const std::string& prefix, Get get) {
  list.key(MOETWIN_SUBKEY(prefix, get, kind), "Course of the learning rate over steps.")
      .one_of({"constant", "warmup", "cosine", "hold"});
  list.key(MOETWIN_SUBKEY(prefix, get, warmup_steps), "Linear rise from 0, for every kind.")
      .in("steps")
      .at_least(0);
  list.key(MOETWIN_SUBKEY(prefix, get, decay_steps),
           "cosine: steps until min_ratio is reached; 0: training_config.steps.")
      .in("steps")
      .at_least(0);
  list.key(MOETWIN_SUBKEY(prefix, get, min_ratio), "cosine: final value / peak value.")
      .between(0, 1);
  list.key(MOETWIN_SUBKEY(prefix, get, hold_steps),
           "hold: hold_ratio up to and with this step, then 1.")
      .in("steps")
      .at_least(0);
  list.key(MOETWIN_SUBKEY(prefix, get, hold_ratio), "hold: first value / peak value.").at_least(0);
}

template <class Get>
void add_parameter_kind_keys(KeyList& list, const std::string& prefix, const char* which, Get get) {
  list.section(prefix, std::string("Optimizer settings of ") + which + ".");
  list.key(MOETWIN_SUBKEY(prefix, get, learning_rate_multiplier),
           "Multiplies training_config.learning_rate.")
      .at_least(0);
  list.key(MOETWIN_SUBKEY(prefix, get, weight_decay_multiplier),
           "Multiplies training_config.weight_decay.")
      .at_least(0);
  const auto schedule = [get](const Scenario& s) -> std::optional<Schedule>& {
    return get(const_cast<Scenario&>(s)).schedule;
  };
  list.table()->sections.push_back(
      {prefix + ".schedule", "Schedule of this kind; null: that of training_config.",
       [schedule](const Scenario& s) { return schedule(s).has_value(); },
       [schedule](Scenario& s, bool there) {
         if (!there)
           schedule(s).reset();
         else if (!schedule(s))
           schedule(s).emplace();
       }});
  add_schedule_keys(list, prefix + ".schedule",
                    [schedule](Scenario& s) -> Schedule& { return *schedule(s); });
}

}  // namespace

void add_training_keys(KeyList& list) {
  list.section("training_config", "Steps, batch, optimizer.");
  list.key(MOETWIN_KEY(training_config.steps), "Optimizer steps.")
      .in("steps")
      .between(1, 4294967295.0);
  list.key(MOETWIN_KEY(training_config.global_batch_size),
           "Sequences of one step over all ranks; where it is left out, 8 rounded up to a multiple "
           "of dense data parallel size x micro_batch_size.")
      .in("sequences")
      .between(1, 1 << 30);
  list.key(MOETWIN_KEY(training_config.micro_batch_size), "Sequences of one forward on one rank.")
      .in("sequences")
      .between(1, 1 << 20);
  list.key(MOETWIN_KEY(training_config.seed), "Seed of every random draw.").at_least(0);
  list.key(MOETWIN_KEY(training_config.numerics),
           "full: really train; none: time, memory and traffic only.")
      .one_of({"full", "none"});
  list.key(MOETWIN_KEY(training_config.dtype),
           "Type of weights and activations in computing; fp64 on the modelled GPU only.")
      .one_of({"fp32", "bf16", "fp16", "fp64"});
  list.key(MOETWIN_KEY(training_config.optimizer), "Optimizer.").one_of({"adamw", "sgd"});
  list.key(MOETWIN_KEY(training_config.learning_rate), "Peak learning rate.").at_least(0);
  list.key(MOETWIN_KEY(training_config.beta1), "AdamW: decay of the first moment.")
      .at_least(0)
      .below(1);
  list.key(MOETWIN_KEY(training_config.beta2), "AdamW: decay of the second moment.")
      .at_least(0)
      .below(1);
  list.key(MOETWIN_KEY(training_config.adam_epsilon), "AdamW: added to the root of the moment.")
      .above(0);
  list.key(MOETWIN_KEY(training_config.weight_decay), "Decoupled weight decay.").at_least(0);
  list.key(MOETWIN_KEY(training_config.decay_one_dimensional), "Decay biases and norms too.");
  list.key(MOETWIN_KEY(training_config.max_grad_norm), "Clip the global gradient norm; 0: off.")
      .at_least(0);
  list.key(MOETWIN_KEY(training_config.recompute),
           "Activations that the backward makes again instead of keeping them; selective: those of "
           "recompute_modules; full: all of a layer but its input and its routing.")
      .one_of({"none", "selective", "full"});
  list.key(
          MOETWIN_KEY(training_config.recompute_modules),
          "With recompute selective: attention_core (its output), expert_activation (the experts' "
          "hidden values), alternate_products (of dense layers, numerics none: all but attention's "
          "output and every other product, PyTorch's checkpointing by op).")
      .one_of({"attention_core", "expert_activation", "alternate_products"});
  list.section(
      "training_config.loss_scaling",
      "The loss is multiplied before backward, gradients are divided after it; a step whose "
      "gradients overflow is skipped on all ranks.");
  list.key(MOETWIN_KEY(training_config.loss_scaling.mode),
           "auto: dynamic for fp16, otherwise none.")
      .one_of({"auto", "dynamic", "static", "none"});
  list.key(MOETWIN_KEY(training_config.loss_scaling.initial_scale),
           "First scale; static: the scale of every step.")
      .above(0);
  list.key(MOETWIN_KEY(training_config.loss_scaling.growth_factor),
           "dynamic: multiplies the scale after growth_interval_steps without overflow.")
      .at_least(1);
  list.key(MOETWIN_KEY(training_config.loss_scaling.backoff_factor),
           "dynamic: multiplies the scale at an overflow.")
      .above(0)
      .below(1);
  list.key(MOETWIN_KEY(training_config.loss_scaling.growth_interval_steps),
           "dynamic: steps without overflow before the scale grows.")
      .in("steps")
      .at_least(1);
  list.key(MOETWIN_KEY(training_config.loss_scaling.hysteresis),
           "dynamic: the scale falls at this many overflows since it last changed.")
      .at_least(1);
  list.key(MOETWIN_KEY(training_config.loss_scaling.minimum_scale),
           "dynamic: an overflow at this scale ends the run.")
      .above(0);
  list.section("training_config.schedule", "Course of the learning rate.");
  add_schedule_keys(list, "training_config.schedule",
                    [](Scenario& s) -> Schedule& { return s.training_config.schedule; });
  add_parameter_kind_keys(
      list, "training_config.router", "the routers",
      [](Scenario& s) -> ParameterKindConfig& { return s.training_config.router; });
  add_parameter_kind_keys(
      list, "training_config.expert", "the experts",
      [](Scenario& s) -> ParameterKindConfig& { return s.training_config.expert; });
  add_parameter_kind_keys(
      list, "training_config.dense", "attention, norms, dense FFN and shared experts",
      [](Scenario& s) -> ParameterKindConfig& { return s.training_config.dense; });
  add_parameter_kind_keys(
      list, "training_config.embedding", "embeddings and LM head",
      [](Scenario& s) -> ParameterKindConfig& { return s.training_config.embedding; });
  list.key(MOETWIN_KEY(training_config.validation_every),
           "Steps between validations; 0: only at the end, where there is validation data.")
      .in("steps")
      .at_least(0);
  list.key(MOETWIN_KEY(training_config.validation_sequences), "Sequences of one validation.")
      .in("sequences")
      .at_least(1);
  list.key(MOETWIN_KEY(training_config.warmup_steps_excluded),
           "First steps left out of throughput.")
      .in("steps")
      .at_least(0);
}

}  // namespace moetwin
