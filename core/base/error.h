#pragma once
// Errors. Libraries throw; only cli turns an error into an exit code.

#include <stdexcept>
#include <string>

namespace moetwin {

/// Exit codes of `moetwin`, one per class of failure.
enum class ErrorClass : int {
  comparison = 1,     ///< a comparison is beyond its tolerance
  configuration = 2,  ///< the scenario or the command line is wrong
  capacity = 3,       ///< out of memory, or a derived size that cannot be
  fault = 4,          ///< a fault or a time-out
  deadlock = 5,       ///< deadlock or desynchronised collectives
  non_finite = 6,     ///< NaN or Inf in logits, loss or gradients
  stopped = 7,        ///< stopped by --stop-on
  internal = 70,      ///< a defect of moetwin itself
};

/// An error with the class that decides the exit code.
class Error : public std::runtime_error {
 public:
  Error(ErrorClass error_class, const std::string& message)
      : std::runtime_error(message), class_(error_class) {}
  ErrorClass error_class() const { return class_; }
  int exit_code() const { return static_cast<int>(class_); }

 private:
  ErrorClass class_;
};

/// Throws an internal error when `condition` is false: a defect of ours, never of the user's input.
void require(bool condition, const char* what);

}  // namespace moetwin
