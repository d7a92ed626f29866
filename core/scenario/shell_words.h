#pragma once
// The words of the commands in a shell script, as far as launch scripts go: quotes, comments,
// continued lines, NAME=value and $NAME. Nothing is executed.

#include <string>
#include <vector>

namespace moetwin {

struct ShellWord {
  std::string text;
  int line = 0;  ///< where the word was written, or the value of the variable it is from
};

struct ShellScript {
  std::vector<std::vector<ShellWord>> commands;
  std::vector<std::string> unread;  ///< "line: text" of what was passed over: conditions, loops
};

/// Variables are those assigned before, and the environment's and the script's arguments are empty.
/// What stands between if and fi, or in a loop, is passed over: a script that takes its values from
/// arguments keeps its defaults.
ShellScript read_shell(const std::string& text);

}  // namespace moetwin
