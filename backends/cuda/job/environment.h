#pragma once
// Environment variables, injected so that tests need not change their own.

#include <functional>
#include <optional>
#include <string>

namespace moetwin {

using Environment = std::function<std::optional<std::string>(const std::string&)>;
/// Of this process; a variable that is set to nothing counts as absent.
Environment process_environment();

}  // namespace moetwin
