#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "base/error.h"
#include "cli/commands.h"

namespace {

constexpr int kUserError = 2, kInternalError = 70;

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Overtake trains neural networks out of order: same weights, less waiting.", "overtake");
  app.require_subcommand(1);
  app.set_version_flag("--version", OVERTAKE_VERSION);
  app.footer("`overtake COMMAND --help` has the options and an example of each command.");
  int exit_code = 0;
  overtake::add_train_command(app, exit_code);
  overtake::add_bench_command(app, exit_code);
  overtake::add_report_command(app, exit_code);
  overtake::add_simulate_command(app, exit_code);
  overtake::add_validate_command(app, exit_code);
  overtake::add_models_command(app, exit_code);
  overtake::add_export_command(app, exit_code);
  overtake::add_devices_command(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    fmt::print(stderr, "overtake: {}; see --help\n", e.what());
    return kUserError;
  } catch (const overtake::UserError& e) {
    fmt::print(stderr, "overtake: {}\n", e.what());
    return kUserError;
  } catch (const std::exception& e) {
    fmt::print(stderr, "overtake: {}\n", e.what());
    return kInternalError;
  }
  return exit_code;
}
