// `moetwin manual`: the manual page, made from the same words as --help.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <ostream>
#include <sstream>

#include "cli/command_line.h"
#include "cli/verbs.h"

namespace moetwin {
namespace {

/// Text as roff reads it: no character is taken for a command.
std::string roff(const std::string& text) {
  std::string safe;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) safe += "\\&";
    line_begins = c == '\n';
    safe += c == '\\' ? std::string("\\e") : c == '-' ? std::string("\\-") : std::string(1, c);
  }
  return safe;
}

std::string option_text(const OptionWords& option) {
  const std::string value = option.names.empty() || option.value.empty() ? "" : " " + option.value;
  return fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff(option.name), roff(value),
                     roff(option.description));
}

std::string verb_text(const VerbWords& verb) {
  std::string text = fmt::format(".SS moetwin {}\n{}.\n", roff(verb.name), roff(verb.description));
  for (const OptionWords& option : verb.options) text += option_text(option);
  if (!verb.footer.empty()) text += fmt::format(".PP\n.nf\n{}\n.fi\n", roff(verb.footer));
  return text;
}

}  // namespace

void add_manual(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("manual", "Print the manual page, as `man` reads it");
  verb->footer("Examples:\n  moetwin manual | man -l -");
  verb->callback([&app, &action] {
    action = [&app](const Output& output) {
      output.out << ".TH MOETWIN 1 \"\" \"moetwin\" \"User Commands\"\n"
                 << ".SH NAME\nmoetwin \\- Mixture\\-of\\-Experts training on a modelled cluster "
                    "or on GPUs\n"
                 << ".SH SYNOPSIS\n.B moetwin\n.I VERB\n[ARGUMENTS] [OPTIONS]\n.SH VERBS\n";
      for (const VerbWords& words : verb_words(app)) output.out << verb_text(words);
      output.out << ".SH \"EXIT STATUS\"\n" << roff(app.get_footer()) << "\n";
      return 0;
    };
  });
}

}  // namespace moetwin
