#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/mistakes.h"
#include "cli/say.h"
#include "cli/spec_flags.h"
#include "comm/group.h"
#include "launch/worker.h"
#include "overtake/version.h"

namespace {

constexpr int kUserError = 2, kInternalError = 70;

// As CLI11 takes them, last first. `launch` passes on all that follows its own options, with or without a -- between;
// CLI11 would hand what follows a -- to the program itself.
std::vector<std::string> arguments_of(int argc, char** argv) {
  std::vector<std::string> out(argv + 1, argv + argc);
  if (!out.empty() && out[0] == "launch") {
    if (const auto mark = std::find(out.begin(), out.end(), "--"); mark != out.end()) out.erase(mark);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

int run(int argc, char** argv) {
  CLI::App app("Overtake trains neural networks out of order: same weights, less waiting.", "overtake");
  app.require_subcommand(1);
  app.set_version_flag("--version", fmt::format("overtake {}, commit {}", overtake::version(), overtake::commit()));
  app.footer("`overtake COMMAND --help`, or `overtake help COMMAND`, has the options and an example of each command.");
  int exit_code = 0;
  overtake::add_train_command(app, exit_code);
  overtake::add_launch_command(app, exit_code);
  overtake::add_bench_command(app, exit_code);
  overtake::add_report_command(app, exit_code);
  overtake::add_plan_command(app, exit_code);
  overtake::add_simulate_command(app, exit_code);
  overtake::add_validate_command(app, exit_code);
  overtake::add_models_command(app, exit_code);
  overtake::add_export_command(app, exit_code);
  overtake::add_devices_command(app, exit_code);
  overtake::add_help_command(app);
  try {
    app.parse(arguments_of(argc, argv));
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    overtake::say(stderr, "overtake: {}\n", overtake::mistake_of(app, e));
    return kUserError;
  } catch (const overtake::UserError& e) {
    overtake::say(stderr, "overtake: {}\n", overtake::with_flags(e.what()));
    return kUserError;
  } catch (const overtake::CommError& e) {
    overtake::say(stderr, "overtake: {}\n", e.what());
    return overtake::kLostARank;
  } catch (const std::bad_alloc&) {
    overtake::say(
        stderr,
        "overtake: there is not enough memory: the system gave no more; lower --batch or the network's settings, or "
        "read a smaller file\n");
    return kUserError;
  } catch (const std::exception& e) {
    overtake::say(stderr, "overtake: {}\n", overtake::with_flags(e.what()));
    return kInternalError;
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on the size of files is an error of writing, as a full disk is
  const int exit_code = run(argc, argv);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  overtake::say(stderr,
                "overtake: the output could not be written in full; make room where it goes, and run it again\n");
  return kUserError;
}
