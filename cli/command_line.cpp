#include "cli/command_line.h"

#include <CLI/CLI.hpp>

namespace moetwin {

namespace {

/// Of "TEXT:{sim,cuda}", as CLI11 writes a value with legal ones.
std::vector<std::string> choices_of(const std::string& type) {
  std::vector<std::string> choices;
  const size_t open = type.find('{'), close = type.rfind('}');
  if (open == type.npos || close == type.npos) return choices;
  for (const std::string& word : CLI::detail::split(type.substr(open + 1, close - open - 1), ','))
    choices.push_back(CLI::detail::trim_copy(word));
  return choices;
}

}  // namespace

std::vector<VerbWords> verb_words(const CLI::App& app) {
  std::vector<VerbWords> verbs;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    VerbWords words{verb->get_name(), verb->get_description(), verb->get_footer(), {}};
    for (const CLI::Option* option : verb->get_options()) {
      if (option == verb->get_help_ptr() || option->get_group().empty()) continue;
      OptionWords o;
      for (const std::string& name : option->get_snames()) o.names.push_back("-" + name);
      for (const std::string& name : option->get_lnames()) o.names.push_back("--" + name);
      o.name = option->get_name(o.names.empty(), true);
      o.description = option->get_description();
      o.required = option->get_required();
      const std::string type = option->get_type_name();
      o.choices = choices_of(type);
      if (option->get_items_expected_max() > 0) o.value = type.substr(0, type.find_first_of(": "));
      words.options.push_back(std::move(o));
    }
    verbs.push_back(std::move(words));
  }
  return verbs;
}

}  // namespace moetwin
