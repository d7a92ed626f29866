#include <string>

#include "core/ops/dealt_order.h"
#include "core/ops/reference/block.h"
#include "core/ops/reference/table.h"
#include "core/ops/router.h"

namespace moetwin::reference {

void router_scripted(const ReferenceCall& call) {
  const int64_t k = call.get<ScriptedAttr>().top_k;
  const int64_t tokens = call[1].shape[0], experts = call[1].shape[1];
  const int64_t* wanted = call[0].as<const int64_t>();
  int64_t sum = 0;
  for (int64_t e = 0; e < experts; ++e) {
    if (wanted[e] < 0 || wanted[e] > tokens)
      throw Error(ErrorClass::internal, "op router_scripted: expert " + std::to_string(e) +
                                            " wants " + std::to_string(wanted[e]) +
                                            " tokens, legal: 0 to " + std::to_string(tokens));
    sum += wanted[e];
  }
  if (sum > tokens * k)
    throw Error(ErrorClass::internal, "op router_scripted: " + std::to_string(sum) +
                                          " assignments wanted of " + std::to_string(tokens * k));
  if (call[4].data) {
    std::copy_n(wanted, experts, call[4].as<int64_t>());
    call[4].as<int64_t>()[experts] = 0;
  }
  if (call[3].data) {
    int32_t* ids = call[3].as<int32_t>();
    std::fill_n(ids, tokens * k, int32_t{-1});
    const DealtOrder order = DealtOrder::of(tokens);
    int64_t a = 0;
    for (int64_t e = 0; e < experts; ++e)
      for (int64_t i = 0; i < wanted[e]; ++i, ++a)
        ids[order.token(a % tokens) * k + a / tokens] = static_cast<int32_t>(e);
  }
  with_compute(call[1].dtype, [&]<class C>(C) {
    const Scratch<C> row(std::max(experts, k));
    if (call[1].data) {
      for (int64_t e = 0; e < experts; ++e)
        row[e] =
            static_cast<C>(sum ? static_cast<double>(wanted[e]) / static_cast<double>(sum) : 0.0);
      for (int64_t t = 0; t < tokens; ++t) write<C>(call[1], t * experts, experts, row.get());
    }
    if (call[2].data) {
      std::fill_n(row.get(), k, static_cast<C>(1.0 / static_cast<double>(k)));
      for (int64_t t = 0; t < tokens; ++t) write<C>(call[2], t * k, k, row.get());
    }
  });
}

void accumulate_counts(const ReferenceCall& call) {
  const int64_t n = elements(call[0]);
  for (int64_t i = 0; i < n; ++i) call[1].as<int64_t>()[i] += call[0].as<const int64_t>()[i];
}

void balance_bias_update(const ReferenceCall& call) {
  const auto& attr = call.get<BiasUpdateAttr>();
  const int64_t experts = elements(call[1]);
  const int64_t* counts = call[0].as<const int64_t>();
  int64_t total = 0;
  for (int64_t e = 0; e < experts; ++e) total += counts[e];
  with_compute(call[1].dtype, [&]<class C>(C) {
    const Scratch<C> bias(experts), excess(experts);
    read<C>(call[1], 0, experts, bias.get());
    const bool average = call[2].data != nullptr;
    if (average) read<C>(call[2], 0, experts, excess.get());
    double mean = 0;
    for (int64_t e = 0; e < experts; ++e) {
      // sign(mean n - n_i) in integers: E n_i against the sum.
      const int64_t over = counts[e] * experts - total;
      double side = static_cast<double>(over);
      if (average) {
        const double now = total ? side / static_cast<double>(total) : 0.0;
        excess[e] =
            static_cast<C>(attr.ema * static_cast<double>(excess[e]) + (1 - attr.ema) * now);
        side = static_cast<double>(excess[e]);
      }
      const double sign = side < 0 ? 1.0 : side > 0 ? -1.0 : 0.0;
      bias[e] += static_cast<C>(attr.rate * sign);
      mean += static_cast<double>(bias[e]);
    }
    mean /= static_cast<double>(experts);
    for (int64_t e = 0; e < experts; ++e) bias[e] -= static_cast<C>(mean);
    write<C>(call[1], 0, experts, bias.get());
    if (average) write<C>(call[2], 0, experts, excess.get());
  });
}

}  // namespace moetwin::reference
