#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>

#include "tests/support/in_child.h"

namespace {

// An assertion that fails in a child of in_child would be lost with the child: end it there.
struct ChildAssertions : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  bool assertionEnded(const Catch::AssertionStats& stats) override {
    const Catch::AssertionResult& result = stats.assertionResult;
    if (!result.isOk())
      moetwin::test::leave_if_child(std::string(result.getSourceInfo().file) + ":" +
                                    std::to_string(result.getSourceInfo().line) + ": " +
                                    result.getExpressionInMacro() + " is " +
                                    result.getExpandedExpression());
    return TestEventListenerBase::assertionEnded(stats);
  }
};
CATCH_REGISTER_LISTENER(ChildAssertions)

}  // namespace
