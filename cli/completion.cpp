// `moetwin completion SHELL`: what makes a shell complete verbs, options, their values and scenario
// keys.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "cli/command_line.h"
#include "cli/verbs.h"
#include "core/scenario/keys.h"

namespace moetwin {
namespace {

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

std::string key_words() {
  std::vector<std::string> paths;
  for (const Key& key : scenario_keys().keys) paths.push_back(key.path);
  return joined(paths);
}

bool takes_keys(const OptionWords& option) {
  return option.value.compare(0, 4, "KEY=") == 0 || option.value.compare(0, 4, "key=") == 0;
}

// zsh reads this too, through bashcompinit.
std::string bash_script(const std::vector<VerbWords>& verbs) {
  std::vector<std::string> names;
  for (const VerbWords& verb : verbs) names.push_back(verb.name);
  std::string options, values, keys;
  for (const VerbWords& verb : verbs) {
    std::vector<std::string> words{"--help"};
    for (const OptionWords& option : verb.options) {
      words.insert(words.end(), option.names.begin(), option.names.end());
      for (const std::string& name : option.names) {
        if (!option.choices.empty())
          values +=
              fmt::format("    {}:{}) words='{}' ;;\n", verb.name, name, joined(option.choices));
        else if (takes_keys(option))
          keys += fmt::format("{}{}:{}", keys.empty() ? "" : "|", verb.name, name);
      }
    }
    options += fmt::format("      {}) words='{}' ;;\n", verb.name, joined(words));
  }
  return fmt::format(
      "_moetwin() {{\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=\n"
      "  COMPREPLY=()\n"
      "  if [[ $COMP_CWORD == 1 ]]; then\n"
      "    COMPREPLY=($(compgen -W '{} --help --version' -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  case ${{COMP_WORDS[1]}}:$before in\n"
      "{}"
      "    {}) compopt -o nospace; COMPREPLY=($(compgen -S = -W '{}' -- \"$current\")); return ;;\n"
      "  esac\n"
      "  if [[ -z $words && $current == -* ]]; then\n"
      "    case ${{COMP_WORDS[1]}} in\n"
      "{}"
      "    esac\n"
      "  fi\n"
      "  if [[ -n $words ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "  else\n"
      "    compopt -o filenames\n"
      "    COMPREPLY=($(compgen -f -- \"$current\"))\n"
      "  fi\n"
      "}}\n"
      "complete -F _moetwin moetwin ./moetwin\n",
      joined(names), values, keys, key_words(), options);
}

std::string fish_text(const std::string& text) {
  std::string safe;
  for (const char c : text)
    safe += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return "'" + safe + "'";
}

std::string fish_script(const std::vector<VerbWords>& verbs) {
  std::string script = "complete -c moetwin -n __fish_use_subcommand -l help -l version\n";
  for (const VerbWords& verb : verbs) {
    script += fmt::format("complete -c moetwin -n __fish_use_subcommand -fa {} -d {}\n", verb.name,
                          fish_text(verb.description));
    for (const OptionWords& option : verb.options) {
      if (option.names.empty()) continue;
      script += fmt::format("complete -c moetwin -n '__fish_seen_subcommand_from {}'", verb.name);
      for (const std::string& name : option.names)
        script += name.compare(0, 2, "--") == 0 ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (!option.choices.empty())
        script += " -xa " + fish_text(joined(option.choices));
      else if (takes_keys(option))
        script += " -xa " + fish_text(key_words());
      else if (!option.value.empty())
        script += " -r";
      script += " -d " + fish_text(option.description) + "\n";
    }
  }
  return script;
}

}  // namespace

void add_completion(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("completion", "Print what makes a shell complete moetwin");
  auto shell = std::make_shared<std::string>();
  verb->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  verb->footer(
      "Examples:\n"
      "  moetwin completion bash > ~/.local/share/bash-completion/completions/moetwin\n"
      "  source <(moetwin completion zsh)        (in ~/.zshrc)\n"
      "  moetwin completion fish > ~/.config/fish/completions/moetwin.fish");
  verb->callback([shell, &app, &action] {
    action = [shell, &app](const Output& output) {
      const std::vector<VerbWords> verbs = verb_words(app);
      if (*shell == "zsh") output.out << "autoload -U +X bashcompinit && bashcompinit\n";
      output.out << (*shell == "fish" ? fish_script(verbs) : bash_script(verbs));
      return 0;
    };
  });
}

}  // namespace moetwin
