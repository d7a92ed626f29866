// `moetwin doctor`: what this machine has of what runs on GPUs need, and what follows.
#include <CLI/CLI.hpp>
#include <ostream>

#include "backends/cuda/cluster.h"
#include "backends/cuda/probe/findings.h"
#include "cli/verbs.h"

namespace moetwin {

void add_doctor(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand(
      "doctor", "Say what is found of GPUs, NCCL and network, what will work and what will not");
  verb->footer("Examples:\n  moetwin doctor");
  verb->callback([&action] {
    action = [](const Output& output) {
      output.out << diagnosis_text(diagnose(look_around(built_with_cuda())));
      return 0;
    };
  });
}

}  // namespace moetwin
