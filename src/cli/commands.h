#pragma once
// The subcommands of `overtake`, one file each.

#include <CLI/CLI.hpp>

namespace overtake {

// Each adds itself to the program; its work is done in the callback, which returns through `exit_code`.
void add_train_command(CLI::App& app, int& exit_code);
void add_launch_command(CLI::App& app, int& exit_code);
void add_bench_command(CLI::App& app, int& exit_code);
void add_report_command(CLI::App& app, int& exit_code);
void add_plan_command(CLI::App& app, int& exit_code);
void add_simulate_command(CLI::App& app, int& exit_code);
void add_validate_command(CLI::App& app, int& exit_code);
void add_models_command(CLI::App& app, int& exit_code);
void add_export_command(CLI::App& app, int& exit_code);
void add_devices_command(CLI::App& app, int& exit_code);
void add_help_command(CLI::App& app);

}  // namespace overtake
