// The table: every op once, at its own index, with arithmetic on every instruction set.

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "core/base/error.h"
#include "core/ops/isa.h"
#include "core/ops/table.h"
#include "tests/core/ops/phantom.h"

namespace moetwin {

TEST_CASE("every op is in the table at its own index and found by its name") {
  std::set<std::string> names;
  int index = 0;
  for (const Op* op : all_ops()) {
    CHECK(op->index == index++);
    CHECK(names.insert(op->name).second);
    CHECK(find_op(op->name) == op);
    CHECK(op->operands.size() >= 1);
    CHECK(op->operands.size() <= kMaxOperands);
    bool writes = false;
    for (const Operand& operand : op->operands) writes = writes || operand.access != Access::read;
    CHECK(writes);
  }
  CHECK(index == static_cast<int>(OpIndex::count));
  CHECK(find_op("no such op") == nullptr);
}

TEST_CASE("the sample calls cover every op") {
  for (DType d : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    std::set<int> seen;
    for (const OpCall& call : test::sample_calls(d)) seen.insert(call.op->index);
    CHECK(seen.size() == all_ops().size());
  }
}

TEST_CASE("each instruction set brings its own arithmetic") {
  for (const Op* op : all_ops()) {
    const Reference plain = reference_of(*op, Isa::x86_64), v3 = reference_of(*op, Isa::x86_64_v3),
                    v4 = reference_of(*op, Isa::x86_64_v4);
    CHECK(plain != nullptr);
    CHECK((plain != v3 && v3 != v4 && plain != v4));
  }
}

TEST_CASE("instruction sets by name") {
  CHECK(parse_isa("x86-64") == Isa::x86_64);
  CHECK(parse_isa("auto") == best_isa());
  CHECK(isa_supported(best_isa()));
  CHECK(std::string(isa_name(Isa::x86_64_v3)) == "x86-64-v3");
  try {
    parse_isa("x86-64-v9");
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(e.error_class() == ErrorClass::configuration);
    CHECK(std::string(e.what()).find("legal: auto, x86-64, x86-64-v3, x86-64-v4") !=
          std::string::npos);
  }
}

}  // namespace moetwin
