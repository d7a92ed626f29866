#include "core/ops/embedding.h"

#include <string>

#include "core/ops/reference/block.h"
#include "core/ops/reference/table.h"

namespace moetwin::reference {
namespace {

/// The table's row of a token, or -1 where another part of the vocabulary has it.
int64_t row_of(int32_t id, int64_t token, int64_t rows, const EmbedAttr& a) {
  const int64_t vocabulary = a.vocabulary > 0 ? a.vocabulary : rows;
  if (id < 0 || id >= vocabulary)
    throw Error(ErrorClass::internal, "op embed: token " + std::to_string(token) + " has id " +
                                          std::to_string(id) + ", legal: 0 to " +
                                          std::to_string(vocabulary - 1));
  const int64_t row = id - a.first_row;
  return row >= 0 && row < rows ? row : -1;
}

}  // namespace

void embed(const ReferenceCall& call) {
  const int64_t tokens = call[3].shape[0], h = call[3].shape[1];
  const auto a = call.get<EmbedAttr>();
  const int64_t s = a.sequence_length;
  const int32_t* ids = call[0].as<const int32_t>();
  with_compute(call[3].dtype, [&]<class C>(C) {
    const Scratch<C> row(h), position(h);
    const C offset = static_cast<C>(a.offset);
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t at = row_of(ids[t], t, call[1].shape[0], a);
      if (at < 0)
        std::fill_n(row.get(), h, C(0));
      else
        read<C>(call[1], at * h, h, row.get());
      if (call[2].data) {
        const C* p = peek<C>(call[2], t % s * h, h, position.get());
        for (int64_t i = 0; i < h; ++i) row[i] += p[i];
      }
      if (offset != 0)
        for (int64_t i = 0; i < h; ++i) row[i] += offset;
      write<C>(call[3], t * h, h, row.get());
    }
  });
}

void embed_backward(const ReferenceCall& call) {
  const int64_t tokens = call[1].shape[0], h = call[1].shape[1];
  const auto a = call.get<EmbedAttr>();
  const int64_t s = a.sequence_length;
  const int32_t* ids = call[0].as<const int32_t>();
  with_compute(call[1].dtype, [&]<class C>(C) {
    const Scratch<C> row(h);
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t at = row_of(ids[t], t, call[2].shape[0], a);
      const C* d = peek<C>(call[1], t * h, h, row.get());
      if (at >= 0) add_to<C>(call[2], at * h, h, d);
      if (call[3].data) add_to<C>(call[3], t % s * h, h, d);
    }
  });
}

}  // namespace moetwin::reference
