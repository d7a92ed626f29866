#pragma once
// One declaration per verb; each is defined in the file of its name.

#include "cli/program.h"

namespace moetwin {

void add_run(CLI::App& app, Action& action);
void add_check(CLI::App& app, Action& action);
void add_topology(CLI::App& app, Action& action);
void add_import(CLI::App& app, Action& action);
void add_export(CLI::App& app, Action& action);
void add_calibrate(CLI::App& app, Action& action);
void add_doctor(CLI::App& app, Action& action);
void add_schema(CLI::App& app, Action& action);
void add_diagnose(CLI::App& app, Action& action);
void add_compare(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_validate(CLI::App& app, Action& action);
void add_sweep(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_completion(CLI::App& app, Action& action);
void add_manual(CLI::App& app, Action& action);

}  // namespace moetwin
