#include "backends/sim/collective/arithmetic.h"

#include <Eigen/Core>
#include <algorithm>
#include <cstring>

#include "core/base/error.h"

namespace moetwin {
namespace {

constexpr int64_t kPiece = 2048;  // elements reduced at once: stays in cache, on the stack

template <class T>
struct Wide {
  using type = float;
};
template <>
struct Wide<double> {
  using type = double;
};
template <>
struct Wide<int32_t> {
  using type = int64_t;
};
template <>
struct Wide<int64_t> {
  using type = int64_t;
};

template <class W>
void combine(ReduceOp op, W* into, const W* from, int64_t count) {
  switch (op) {
    case ReduceOp::sum:
      for (int64_t i = 0; i < count; ++i) into[i] += from[i];
      break;
    case ReduceOp::max:  // a NaN stays
      for (int64_t i = 0; i < count; ++i)
        if (from[i] > into[i] || from[i] != from[i]) into[i] = from[i];
      break;
    case ReduceOp::min:
      for (int64_t i = 0; i < count; ++i)
        if (from[i] < into[i] || from[i] != from[i]) into[i] = from[i];
      break;
  }
}

// Reduces elements [first, first + count) of every member's send and gives each piece to `put`.
template <class T, class Put>
void reduce(ReduceOp op, const std::vector<MemberData>& members, int64_t first, int64_t count,
            Put put) {
  using W = typename Wide<T>::type;
  W sum[kPiece], next[kPiece];
  T narrow[kPiece];
  for (int64_t at = 0; at < count; at += kPiece) {
    const int64_t piece = std::min(kPiece, count - at);
    for (size_t m = 0; m < members.size(); ++m) {
      const T* from = members[m].send.view.as<T>() + first + at;
      W* wide = m == 0 ? sum : next;
      for (int64_t i = 0; i < piece; ++i) wide[i] = static_cast<W>(from[i]);
      if (m > 0) combine(op, sum, next, piece);
    }
    for (int64_t i = 0; i < piece; ++i) narrow[i] = static_cast<T>(sum[i]);
    put(at, narrow, piece);
  }
}

template <class T>
void all_reduce(ReduceOp op, std::vector<MemberData>& members) {
  // A piece is written only after every member's piece was read, so that send may be recv.
  reduce<T>(op, members, 0, members[0].send.view.shape.elements(),
            [&](int64_t at, const T* values, int64_t count) {
              for (MemberData& m : members) std::copy_n(values, count, m.recv.view.as<T>() + at);
            });
}

template <class T>
void reduce_scatter(ReduceOp op, std::vector<MemberData>& members) {
  const int64_t part = members[0].recv.view.shape.elements();
  for (size_t m = 0; m < members.size(); ++m)
    reduce<T>(op, members, static_cast<int64_t>(m) * part, part,
              [&](int64_t at, const T* values, int64_t count) {
                std::copy_n(values, count, members[m].recv.view.as<T>() + at);
              });
}

template <class Do>
void by_type(DType dtype, Do&& go) {
  switch (dtype) {
    case DType::f32:
      return go(float{});
    case DType::bf16:
      return go(Eigen::bfloat16{});
    case DType::f16:
      return go(Eigen::half{});
    case DType::f64:
      return go(double{});
    case DType::i32:
      return go(int32_t{});
    case DType::i64:
      return go(int64_t{});
  }
}

int64_t byte_count(const HeldTensor& tensor) {
  return tensor.view.shape.elements() * dtype_size(tensor.view.dtype);
}

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, static_cast<size_t>(bytes));
}

char* address(const HeldTensor& tensor) { return static_cast<char*>(tensor.view.data); }

void all_gather(std::vector<MemberData>& members) {
  const int64_t part = byte_count(members[0].send);
  for (MemberData& to : members)
    for (size_t m = 0; m < members.size(); ++m)
      copy_bytes(address(to.recv) + static_cast<int64_t>(m) * part, address(members[m].send), part);
}

void all_to_all(std::vector<MemberData>& members) {
  for (size_t i = 0; i < members.size(); ++i)
    for (size_t j = 0; j < members.size(); ++j) {
      const MemberData& from = members[i];
      const MemberData& to = members[j];
      const int64_t rows = (*from.send_rows)[j];
      if (rows == 0) continue;
      int64_t row = dtype_size(from.send.view.dtype);
      for (int d = 1; d < from.send.view.shape.rank; ++d) row *= from.send.view.shape[d];
      copy_bytes(address(to.recv) + (*to.recv_begin)[i] * row,
                 address(from.send) + (*from.send_begin)[j] * row, rows * row);
    }
}

}  // namespace

void move_data(CollectiveKind kind, ReduceOp op, int64_t root, std::vector<MemberData>& members) {
  const DType dtype = members[0].send.view.dtype;
  switch (kind) {
    case CollectiveKind::all_reduce:
      return by_type(dtype, [&](auto t) { all_reduce<decltype(t)>(op, members); });
    case CollectiveKind::reduce_scatter:
      return by_type(dtype, [&](auto t) { reduce_scatter<decltype(t)>(op, members); });
    case CollectiveKind::all_gather:
      return all_gather(members);
    case CollectiveKind::all_to_all_v:
      return all_to_all(members);
    case CollectiveKind::broadcast: {
      const MemberData& from = members[static_cast<size_t>(root)];
      for (MemberData& m : members)
        copy_bytes(address(m.recv), address(from.send), byte_count(from.send));
      return;
    }
    case CollectiveKind::send:
    case CollectiveKind::recv: {
      const auto from = static_cast<size_t>(root);
      const MemberData& to = members[1 - from];
      copy_bytes(address(to.recv), address(members[from].send), byte_count(members[from].send));
      return;
    }
    case CollectiveKind::barrier:
      return;
  }
}

}  // namespace moetwin
