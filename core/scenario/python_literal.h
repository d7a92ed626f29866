#pragma once
// Literal assignments of a Python file: dictionaries, lists, tuples, strings, numbers, True, False,
// None, with comments and trailing commas. Nothing is executed; what is no literal is listed.

#include <json/value.h>

#include <string>
#include <vector>

namespace moetwin {

/// `name = value` at the left margin.
struct PythonAssignment {
  std::string name;
  Json::Value value;  ///< tuples are arrays, None is null, number keys are their text
  int line = 0;
};

/// A part of the file that is not in `assignments`.
struct PythonUnread {
  int line = 0;
  std::string path;    ///< "model_config.dtype"; empty for a statement
  std::string text;    ///< its source, on one line
  std::string reason;  ///< "no literal", "assertion", "repeated key, the later value counts"
};

struct PythonFile {
  std::vector<PythonAssignment> assignments;
  std::vector<PythonUnread> unread;
  /// Line of the value at a dotted path, for messages.
  std::vector<std::pair<std::string, int>> lines;
};

/// Throws Error(configuration) with "name:line" for text that no Python would accept as far as it
/// matters here: strings and brackets that do not end.
PythonFile read_python_literals(const std::string& text, const std::string& name);

}  // namespace moetwin
