#include "core/scenario/megatron_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <stdexcept>

#include "core/base/error.h"
#include "core/scenario/shell_words.h"

namespace moetwin {

MegatronArguments::MegatronArguments(std::string file, const std::string& text,
                                     ScenarioDraft* draft)
    : file_(std::move(file)), draft_(*draft) {
  const ShellScript script = read_shell(text);
  for (const auto& command : script.commands) {
    for (size_t i = 0; i < command.size(); ++i) {
      if (command[i].text.rfind("--", 0) != 0 || command[i].text.size() == 2) continue;
      Argument argument;
      argument.line = command[i].line;
      const std::string body = command[i].text.substr(2);
      const size_t equals = body.find('=');
      argument.name = body.substr(0, equals);
      if (equals != std::string::npos) argument.values.push_back(body.substr(equals + 1));
      while (i + 1 < command.size() && command[i + 1].text.rfind("--", 0) != 0 &&
             !(command[i + 1].text.size() > 3 &&
               command[i + 1].text.compare(command[i + 1].text.size() - 3, 3, ".py") == 0))
        argument.values.push_back(command[++i].text);
      arguments_.push_back(std::move(argument));
    }
  }
  for (const std::string& line : script.unread)
    draft_.leave(file_ + ":" + line, "a condition or loop: passed over");
  if (!find("num-layers") && !find("hidden-size"))
    throw Error(ErrorClass::configuration,
                fmt::format("{}: no command with Megatron's arguments; legal: a shell script or a "
                            "list of arguments with --num-layers, --hidden-size, ...",
                            file_));
}

MegatronArguments::Argument* MegatronArguments::find(const std::string& name) {
  for (size_t i = arguments_.size(); i-- > 0;)
    if (arguments_[i].name == name) return &arguments_[i];
  return nullptr;
}

bool MegatronArguments::flag(const std::string& name) {
  Argument* a = find(name);
  if (a) a->used = true;
  return a != nullptr;
}

std::optional<std::string> MegatronArguments::text(const std::string& name) {
  Argument* a = find(name);
  if (!a || a->values.empty()) return std::nullopt;
  a->used = true;
  return a->values.front();
}

std::optional<double> MegatronArguments::number(const std::string& name) {
  const auto value = text(name);
  if (!value) return std::nullopt;
  size_t read = 0;
  double result = 0;
  try {
    result = std::stod(*value, &read);
  } catch (const std::logic_error&) {
  }
  if (read != value->size())
    throw Error(ErrorClass::configuration,
                fmt::format("{}:{}: --{} {}: no number; a value that a script computes must be "
                            "written out",
                            file_, find(name)->line, name, *value));
  return result;
}

std::optional<int64_t> MegatronArguments::integer(const std::string& name) {
  const auto value = number(name);
  if (!value) return std::nullopt;
  return std::llround(*value);
}

void MegatronArguments::leave(Argument& a, const std::string& reason) {
  a.used = true;
  draft_.leave(fmt::format("{}:{}: --{} {}", file_, a.line, a.name, fmt::join(a.values, " ")),
               reason);
}

void MegatronArguments::leave(const std::string& name, const std::string& reason) {
  if (Argument* a = find(name))
    leave(*a, reason);
  else
    draft_.leave(file_ + ": --" + name, reason);
}

void MegatronArguments::leave_rest(
    const std::function<std::string(const std::string& name)>& reason) {
  for (Argument& a : arguments_)
    if (!a.used) leave(a, reason(a.name));
}

}  // namespace moetwin
