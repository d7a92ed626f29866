#include "analysis/validate/bare_kernel.h"

namespace moetwin {
namespace {

void check(const OpCall&) {}
void kernels(const OpCall& call, const KernelChoice&, KernelList& out) {
  out.push_back(call.get<KernelWork>());
}
int64_t workspace(const OpCall&) { return 0; }

constinit const Op op_bare_kernel = {"bare_kernel", -1, {}, check, kernels, workspace};

}  // namespace

OpCall bare_kernel(const KernelWork& work) { return make_call(op_bare_kernel, {}, work); }

}  // namespace moetwin
