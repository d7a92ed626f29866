#include "backends/sim/runtime/beside_products.h"

#include <cstring>

namespace moetwin {

BesideProducts::Way BesideProducts::way_of(CollectiveKind kind, const char* purpose,
                                           Phase phase) const {
  if (share_ > 0 && std::strcmp(purpose, "sequence parallel") == 0)
    return kind == CollectiveKind::all_gather       ? Way::gather
           : kind == CollectiveKind::reduce_scatter ? Way::reduction
                                                    : Way::none;
  if (sums_ && phase == Phase::backward && std::strcmp(purpose, "tensor parallel") == 0)
    return Way::sum;
  return Way::none;
}

double BesideProducts::product(double seconds) {
  double hidden = 0;
  for (double& left : gathers_) {
    if (left <= 0) continue;
    hidden = std::min(share_ * seconds, left);
    left = 0;  // beside one product only
    break;
  }
  room_ = share_ * seconds - hidden;
  product_ = seconds;
  return hidden;
}

double BesideProducts::ahead(Way way) const {
  return way == Way::reduction ? room_ : way == Way::sum ? product_ : 0;
}

double BesideProducts::ended(Way way, double before, double start, double end) {
  const double seconds = end - start;
  switch (way) {
    case Way::gather:
      gathers_ = {gathers_[1], share_ * seconds};
      return end;
    case Way::reduction: {
      const double goes_on = std::max(end, before + (1 - share_) * seconds);
      room_ -= before + seconds - goes_on;
      return goes_on;
    }
    case Way::sum: {
      const double goes_on = std::max(end, before);
      product_ -= before + seconds - goes_on;
      return goes_on;
    }
    case Way::none:
      break;
  }
  return end;
}

}  // namespace moetwin
