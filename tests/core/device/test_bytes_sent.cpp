// Bytes that a member of a collective sends, by hand.
#include <catch2/catch.hpp>

#include "core/device/bytes_sent.h"

using namespace moetwin;

namespace {

CollectiveCall call_of(CollectiveKind kind, int64_t send, int64_t recv) {
  CollectiveCall call;
  call.kind = kind;
  call.send.shape = {send};
  call.recv.shape = {recv};
  return call;
}

}  // namespace

TEST_CASE("bytes sent are those of a ring, rounded down") {
  // 2 fp32 are 8 bytes: 8 * 2 * 13 / 14 = 14.86. 10,240 bytes: 10,240 * 2 * 4 / 5 = 16,384.
  CHECK(bytes_sent(call_of(CollectiveKind::all_reduce, 2, 2), 3, 14) == 14);
  CHECK(bytes_sent(call_of(CollectiveKind::all_reduce, 2560, 2560), 0, 5) == 16384);
  CHECK(bytes_sent(call_of(CollectiveKind::all_reduce, 2560, 2560), 0, 1) == 0);
  // 3 times 5 fp32 are 60 bytes, of which a member passes on two thirds.
  CHECK(bytes_sent(call_of(CollectiveKind::all_gather, 5, 15), 0, 3) == 40);
  CHECK(bytes_sent(call_of(CollectiveKind::reduce_scatter, 15, 5), 2, 3) == 40);
  // 2^51 bytes over 16,384 ranks: twice, less a share.
  const int64_t large = int64_t{1} << 49;
  CHECK(bytes_sent(call_of(CollectiveKind::all_reduce, large, large), 0, 16384) ==
        (int64_t{1} << 52) - (int64_t{1} << 38));
}

TEST_CASE("bytes sent along a chain, to one and to each") {
  CollectiveCall chain = call_of(CollectiveKind::broadcast, 10, 10);
  chain.peer = 1;  // 1 -> 2 -> 3 -> 0
  for (int64_t rank = 0; rank < 4; ++rank)
    CHECK(bytes_sent(chain, rank, 4) == (rank == 0 ? 0 : 40));
  CHECK(bytes_sent(call_of(CollectiveKind::send, 10, 0), 0, 2) == 40);
  CHECK(bytes_sent(call_of(CollectiveKind::recv, 0, 10), 1, 2) == 0);
  CHECK(bytes_sent(call_of(CollectiveKind::barrier, 0, 0), 1, 2) == 0);
  CollectiveCall exchange = call_of(CollectiveKind::all_to_all_v, 0, 0);
  exchange.send.shape = {9, 7};
  exchange.send.dtype = DType::bf16;
  exchange.send_rows = std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{4, 3, 2});
  CHECK(bytes_sent(exchange, 1, 3) == 6 * 14);
}
