#include "core/base/error.h"

namespace moetwin {

void require(bool condition, const char* what) {
  if (!condition) throw Error(ErrorClass::internal, std::string("internal error: ") + what);
}

}  // namespace moetwin
