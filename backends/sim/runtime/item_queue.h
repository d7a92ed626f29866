#pragma once
// A first-in first-out queue that keeps its memory: a ring whose size is a power of two.

#include <cstddef>
#include <vector>

namespace moetwin {

template <class Item>
class ItemQueue {
 public:
  bool empty() const { return count_ == 0; }
  size_t size() const { return count_; }
  Item& front() { return ring_[first_]; }
  const Item& front() const { return ring_[first_]; }
  const Item& at(size_t i) const { return ring_[(first_ + i) & (ring_.size() - 1)]; }
  void push_back(const Item& item) {
    if (count_ == ring_.size()) grow();
    ring_[(first_ + count_++) & (ring_.size() - 1)] = item;
  }
  void pop_front() {
    first_ = (first_ + 1) & (ring_.size() - 1);
    --count_;
  }

 private:
  void grow() {
    std::vector<Item> larger(ring_.empty() ? 8 : 2 * ring_.size());
    for (size_t i = 0; i < count_; ++i) larger[i] = ring_[(first_ + i) & (ring_.size() - 1)];
    ring_.swap(larger);
    first_ = 0;
  }
  std::vector<Item> ring_;
  size_t first_ = 0, count_ = 0;
};

}  // namespace moetwin
