#include "core/ops/embedding.h"

#include "core/ops/row.h"

namespace moetwin {
namespace {

constexpr Operand kForward[] = {{"ids", Access::read},
                                {"table", Access::read},
                                {"positions", Access::read, true},
                                {"out", Access::write}};
constexpr Operand kBackward[] = {{"ids", Access::read},
                                 {"d_out", Access::read},
                                 {"d_table", Access::read_write},
                                 {"d_positions", Access::read_write, true}};

void check_common(const OpCall& c, int table, int positions, int rows) {
  const Check check(c);
  const int64_t s = c.get<EmbedAttr>().sequence_length, t = c[0].elements(), h = c[rows].shape[1];
  check.dtype(0, DType::i32);
  check.shape(0, {t});
  check.rank(table, 2);
  check.shape(rows, {t, h});
  check.shape(table, {check.extent(table, 0), h});
  check.that(s >= 1 && t % s == 0, "tokens are whole sequences");
  check.that(c.get<EmbedAttr>().first_row >= 0 && c.get<EmbedAttr>().vocabulary >= 0,
             "a part of the vocabulary begins inside of it");
  check.shape(positions, {s, h});
  check.real(rows);
  check.same_or_real(table, rows);
  check.same_or_real(positions, rows);
}
void check_forward(const OpCall& c) { check_common(c, 1, 2, 3); }
void check_backward(const OpCall& c) { check_common(c, 2, 3, 1); }

void kernels_forward(const OpCall& c, const KernelChoice& choice, KernelList& out) {
  const double rows = bytes_of(c[3]), positions = bytes_of(c[2]), n = elements_of(c[3]);
  const DType d = c[3].dtype;
  // The table is read where tokens point, so as many bytes as rows are gathered.
  if (choice == KernelClass::moetwin || !c[2].defined()) {
    out.push_back(simple_kernel(KernelKind::gather, d, c[2].defined() ? n : 0,
                                bytes_of(c[0]) + 2 * rows + positions));
    return;
  }
  out.push_back(simple_kernel(KernelKind::gather, d, 0, bytes_of(c[0]) + 2 * rows));
  out.push_back(simple_kernel(KernelKind::gather, d, 0, positions + rows));
  out.push_back(simple_kernel(KernelKind::elementwise, d, n, 3 * rows));
}
void kernels_backward(const OpCall& c, const KernelChoice& choice, KernelList& out) {
  const double rows = bytes_of(c[1]), n = elements_of(c[1]);
  const double wide = n * static_cast<double>(dtype_size(c[2].dtype));
  const DType d = c[1].dtype;
  const double table = bytes_of(c[0]) + rows + 2 * wide;
  const double positions = 2 * bytes_of(c[3]);
  if (choice == KernelClass::moetwin) {
    out.push_back(
        simple_kernel(KernelKind::gather, d, c[3].defined() ? 2 * n : n, table + positions));
    return;
  }
  // PyTorch sorts the ids first, then sums the rows of each.
  out.push_back(simple_kernel(KernelKind::sort, DType::i32, 0, 4 * bytes_of(c[0])));
  out.push_back(simple_kernel(KernelKind::gather, d, n, table));
  if (c[3].defined()) out.push_back(simple_kernel(KernelKind::reduction, d, n, rows + positions));
}

}  // namespace

constinit const Op op_embed = {"embed",       index_of(OpIndex::embed), kForward,
                               check_forward, kernels_forward,          no_workspace};
constinit const Op op_embed_backward = {"embed_backward", index_of(OpIndex::embed_backward),
                                        kBackward,        check_backward,
                                        kernels_backward, no_workspace};

OpCall embed(const Tensor& ids, const Tensor& table, const Tensor& positions, const Tensor& out,
             EmbedAttr attr) {
  return make_call(op_embed, {ids, table, positions, out}, attr);
}
OpCall embed_backward(const Tensor& ids, const Tensor& d_out, const Tensor& d_table,
                      const Tensor& d_positions, EmbedAttr attr) {
  return make_call(op_embed_backward, {ids, d_out, d_table, d_positions}, attr);
}

}  // namespace moetwin
