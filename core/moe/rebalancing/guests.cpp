#include "core/moe/rebalancing/guests.h"

#include <algorithm>
#include <utility>

#include "core/ops/dispatch.h"
#include "core/ops/elementwise.h"

namespace moetwin {

namespace {

/// [experts, ...] as rows of one expert each.
Tensor by_expert(const Tensor& t) {
  const int64_t n = t.shape[0];
  return t.reshaped({n, n > 0 ? t.elements() / n : t.shape.elements()});
}

HostSizes share(std::vector<int64_t> values) {
  return std::make_shared<const std::vector<int64_t>>(std::move(values));
}

/// Rows of each member, one member after the other.
struct Stretches {
  std::vector<int64_t> rows, begin;
  int64_t end = 0;
  void add(int64_t n) {
    rows.push_back(n);
    begin.push_back(end);
    end += n;
  }
};

/// How many of `experts` are at home on each rank; they are in ascending order.
Stretches by_home(const std::vector<int64_t>& experts, int64_t ranks, int64_t local) {
  Stretches s;
  for (int64_t r = 0; r < ranks; ++r)
    s.add(std::count_if(experts.begin(), experts.end(), [&](int64_t e) { return e / local == r; }));
  return s;
}

/// Who gets which of this rank's experts: how many by rank, and their places here in that order.
std::pair<Stretches, std::vector<int64_t>> by_guest(const ExpertPlan& plan, int64_t ranks,
                                                    int64_t me, int64_t local) {
  Stretches stretches;
  std::vector<int64_t> slots;
  for (int64_t r = 0; r < ranks; ++r) {
    int64_t n = 0;
    for (const int64_t e : plan.guests[static_cast<size_t>(r)])
      if (e / local == me) slots.push_back(e % local), ++n;
    stretches.add(n);
  }
  return {std::move(stretches), std::move(slots)};
}

}  // namespace

void GuestExchange::send_weights(Context& context, const ExpertPlan& plan, int64_t local,
                                 Guests& guests, std::vector<Tensor>& packed) const {
  const int64_t ranks = ep_.size(), me = ep_.rank();
  const Stream stream = context.streams.dispatch;
  const auto [out, slots] = by_guest(plan, ranks, me, local);
  const Stretches in = by_home(mine(plan), ranks, local);
  // Neighbours can be sent as they lie.
  bool neighbours = true;
  std::vector<int64_t> begin = out.begin;
  for (size_t r = 0; r < out.rows.size(); ++r) {
    const auto first = static_cast<size_t>(out.begin[r]);
    if (out.rows[r] == 0) begin[r] = 0;
    for (int64_t i = 0; i < out.rows[r]; ++i) {
      const auto at = first + static_cast<size_t>(i);
      if (i == 0) begin[r] = slots[at];
      neighbours = neighbours && slots[at] == slots[first] + i;
    }
  }
  HostSizes copies;
  if (!neighbours) {
    std::vector<int64_t> triples;
    for (size_t i = 0; i < slots.size(); ++i)
      triples.insert(triples.end(), {slots[i], static_cast<int64_t>(i), 1});
    copies = share(std::move(triples));
  }
  std::vector<Tensor> from;
  for (const Parameter* p : parameters_) {
    from.push_back(by_expert(p->value));
    if (neighbours) continue;
    packed.push_back(context.memory.allocate({out.end, from.back().shape[1]}, p->value.dtype,
                                             MemoryClass::communication, "experts for others"));
    context.launch(regroup(from.back(), packed.back(), copies));
    from.back() = packed.back();
  }
  context.order(context.streams.compute, stream);
  const HostSizes send_rows = share(out.rows), send_begin = share(neighbours ? begin : out.begin),
                  recv_rows = share(in.rows), recv_begin = share(in.begin);
  for (size_t i = 0; i < parameters_.size(); ++i)
    ep_.all_to_all_v(from[i], guests.values[i], send_rows, send_begin, recv_rows, recv_begin,
                     stream, "expert weights");
}

std::shared_ptr<Guests> GuestExchange::fetch(Context& context, const ExpertPlan& plan,
                                             int64_t local) const {
  const std::vector<int64_t> here = mine(plan);
  const auto n = static_cast<int64_t>(here.size());
  auto guests = std::make_shared<Guests>();
  for (const Parameter* p : parameters_) {
    const int64_t row = p->elements() / local;
    guests->values.push_back(context.memory.allocate({n, row}, p->value.dtype,
                                                     MemoryClass::parameters, "guest experts"));
    guests->gradients.push_back(context.memory.allocate(
        {n, row}, p->gradient.dtype, MemoryClass::gradients, "gradients of guest experts"));
    if (n > 0) context.launch(fill(guests->gradients.back(), {}));
  }
  const Stream stream = context.streams.dispatch;
  std::vector<Tensor> packed;
  if (plan.everywhere()) {
    context.order(context.streams.compute, stream);
    int64_t guest = 0;
    for (size_t e = 0; e < plan.shadowed.size(); ++e) {
      if (!plan.shadowed[e]) continue;
      const int64_t home = static_cast<int64_t>(e) / local;
      const bool own = home == ep_.rank();
      for (size_t i = 0; i < parameters_.size(); ++i)
        ep_.broadcast(
            own ? by_expert(parameters_[i]->value).rows(static_cast<int64_t>(e) % local, 1)
                : guests->values[i].rows(guest, 1),
            home, stream, "expert weights");
      if (!own) ++guest;
    }
  } else {
    send_weights(context, plan, local, *guests, packed);
  }
  guests->arrived = context.device.record(stream);
  guests->packed = std::move(packed);
  return guests;
}

ReturningGradients GuestExchange::give_back(Context& context, const ExpertPlan& plan, int64_t local,
                                            const Guests& guests) const {
  const int64_t ranks = ep_.size(), me = ep_.rank();
  const Stream stream = context.streams.dispatch;
  ReturningGradients returning;
  returning.under_way = guests.gradients;
  if (plan.everywhere()) {
    context.order(context.streams.compute, stream);
    int64_t guest = 0;
    for (size_t e = 0; e < plan.shadowed.size(); ++e) {
      if (!plan.shadowed[e]) continue;
      const bool own = static_cast<int64_t>(e) / local == me;
      for (size_t i = 0; i < parameters_.size(); ++i) {
        // At home in place: what the expert has so far, and the sum of what others did.
        const Tensor g =
            own ? by_expert(parameters_[i]->gradient).rows(static_cast<int64_t>(e) % local, 1)
                : guests.gradients[i].rows(guest, 1);
        ep_.all_reduce(g, g, ReduceOp::sum, stream, "expert gradients of guests");
      }
      if (!own) ++guest;
    }
    returning.arrived = context.device.record(stream);
    return returning;
  }
  const Stretches out = by_home(mine(plan), ranks, local);
  const auto [in, slots] = by_guest(plan, ranks, me, local);
  std::vector<Tensor> arriving;
  for (const Parameter* p : parameters_)
    arriving.push_back(context.memory.allocate({in.end, p->elements() / local}, p->gradient.dtype,
                                               MemoryClass::communication, "gradients of guests"));
  context.order(context.streams.compute, stream);
  const HostSizes send_rows = share(out.rows), send_begin = share(out.begin),
                  recv_rows = share(in.rows), recv_begin = share(in.begin);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    ep_.all_to_all_v(guests.gradients[i], arriving[i], send_rows, send_begin, recv_rows, recv_begin,
                     stream, "expert gradients of guests");
    const Tensor home = by_expert(parameters_[i]->gradient);
    for (size_t s = 0; s < slots.size(); ++s)
      returning.parts.push_back(
          {arriving[i].rows(static_cast<int64_t>(s), 1), home.rows(slots[s], 1)});
  }
  returning.arrived = context.device.record(stream);
  return returning;
}

void GuestExchange::settle(Context& context, ReturningGradients& returning) {
  context.device.wait(context.streams.compute, returning.arrived);
  for (const ReturningGradients::Part& part : returning.parts)
    context.launch(add(part.to, part.from, part.to));
  returning = {};
}

}  // namespace moetwin
