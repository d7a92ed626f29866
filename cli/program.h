#pragma once
// The program as a function, so that tests run it without a process.

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace moetwin {

/// Where a verb writes: results to `out`, progress, warnings and errors to `err`.
struct Output {
  std::ostream& out;
  std::ostream& err;
};

/// What a verb does once the command line is parsed; returns the exit code.
using Action = std::function<int(const Output&)>;

/// A verb: its file adds its subcommand, with options and examples, and sets `action` when chosen.
struct Verb {
  const char* name;
  void (*add)(CLI::App& app, Action& action);
};

/// All verbs, in the order of --help.
std::vector<Verb> verbs();

/// Runs the command line; exit codes as semantics 9 lists them.
int run_program(const std::vector<std::string>& arguments, const Output& output);

}  // namespace moetwin
