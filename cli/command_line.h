#pragma once
// What the command line has, read from the parser: for shell completion and the manual page.

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace moetwin {

struct OptionWords {
  std::vector<std::string> names;    ///< "--out", "-o"; empty: an argument without a name
  std::string name;                  ///< as the help shows it: "--out,-o", "FILE"
  std::string value;                 ///< "DIR"; empty: a flag
  std::vector<std::string> choices;  ///< the legal values; empty: any
  std::string description;
  bool required = false;
};

struct VerbWords {
  std::string name, description, footer;
  std::vector<OptionWords> options;  ///< without --help
};

/// The verbs of the program in the order of --help.
std::vector<VerbWords> verb_words(const CLI::App& app);

}  // namespace moetwin
