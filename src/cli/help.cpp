#include <fmt/ranges.h>

#include "base/error.h"
#include "base/nearest_word.h"
#include "cli/commands.h"
#include "cli/mistakes.h"
#include "cli/say.h"

namespace overtake {
namespace {

void print_help(const CLI::App& app, const std::string& name) {
  const auto found = app.get_subcommands([&](const CLI::App* command) { return command->get_name() == name; });
  if (!name.empty() && found.empty()) {
    const std::vector<std::string> names = command_names(app);
    fail_user("help: {}: no such command; there are {}{}", name, fmt::join(names, ", "), did_you_mean(name, names));
  }
  const CLI::App* const of = name.empty() ? &app : found.front();
  const std::string called = name.empty() ? app.get_name() : app.get_name() + " " + name;
  say("{}", app.get_formatter()->make_help(of, called, CLI::AppFormatMode::Normal));
}

}  // namespace

void add_help_command(CLI::App& app) {
  const auto name = std::make_shared<std::string>();
  CLI::App* c = app.add_subcommand("help", "say what a command does; the same as COMMAND --help");
  c->add_option("COMMAND", *name, "of which; default: of all, in a line each");
  c->footer("Example:\n  overtake help train");
  c->callback([&app, name] { print_help(app, *name); });
}

}  // namespace overtake
