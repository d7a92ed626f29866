#pragma once
// Gathers and reductions of sequence parallelism beside the products next to them, cut into pieces
// (TensorParallelBeside).

#include <algorithm>
#include <vector>

#include "backends/sim/representative/items.h"

namespace moetwin {

class ProductOverlap {
 public:
  explicit ProductOverlap(int64_t pieces) : share_(1 - 1 / static_cast<double>(pieces)) {}

  /// A product of `seconds` is about to be launched on compute: shortens the gathers before it that
  /// it can go on beside.
  void product(double seconds, ItemList& items, Clocks& clocks) {
    double room = share_ * seconds;
    for (Gather& gather : gathers_) {
      const double hidden = gather.item < items.size() ? std::min(room, gather.left) : 0;
      if (hidden <= 0) continue;
      items[gather.item].seconds -= hidden;
      clocks[kComputeClock] -= hidden;
      room -= hidden;
      gather.left = 0;  // beside one product only
      break;
    }
    latest_ = room;
    product_ = seconds;
  }
  /// Seconds of a reduction that go on beside the latest product.
  double reduction(double seconds) {
    const double hidden = std::min(share_ * seconds, latest_);
    latest_ -= hidden;
    return hidden;
  }
  /// Seconds of what goes on beside all of the latest product, which does not make it.
  double beside_latest(double seconds) {
    const double hidden = std::min(seconds, product_);
    product_ -= hidden;
    return hidden;
  }
  /// A gather that the next products may hide, as the list's last item.
  void gather(double seconds, const ItemList& items) {
    if (share_ > 0 && !items.empty()) gathers_.push_back({items.size() - 1, share_ * seconds});
    if (gathers_.size() > kAtOnce) gathers_.erase(gathers_.begin());
  }
  /// The list begins anew.
  void cut() { gathers_.clear(); }

 private:
  static constexpr size_t kAtOnce = 2;  ///< a saved input and a gradient
  struct Gather {
    size_t item;
    double left;
  };
  double share_, latest_ = 0, product_ = 0;
  std::vector<Gather> gathers_;
};

}  // namespace moetwin
