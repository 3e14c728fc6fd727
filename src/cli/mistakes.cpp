#include "cli/mistakes.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/nearest_word.h"

namespace overtake {
namespace {

bool is_option(const std::string& word) { return word.size() > 1 && word.starts_with('-'); }

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

}  // namespace

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

std::string mistake_of(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> given = app.get_subcommands();
  const CLI::App& command = given.empty() ? app : *given.front();
  const std::string where = given.empty() ? "" : command.get_name() + ": ";
  const std::string help = fmt::format("`overtake {}--help`", given.empty() ? "" : command.get_name() + " ");
  const std::vector<std::string> left_over = command.remaining();
  if (const auto option = std::ranges::find_if(left_over, is_option); option != left_over.end()) {
    const std::string name = option->substr(0, option->find('='));
    const std::string meant = did_you_mean(name, option_names(command));
    return fmt::format("{}{}: no such option{}", where, name,
                       meant.empty() ? fmt::format("; {} lists them", help) : meant);
  }
  const std::string there_are =
      fmt::format("there are {}; {} says what they do", fmt::join(command_names(app), ", "), help);
  if (given.empty() && left_over.empty()) return "which command? " + there_are;
  if (given.empty()) {
    const std::string meant = did_you_mean(left_over.front(), command_names(app));
    return fmt::format("{}: no such command{}", left_over.front(), meant.empty() ? "; " + there_are : meant);
  }
  if (!left_over.empty() && dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)
    return fmt::format("{}{}: one argument too many; {} says which there are", where, left_over.front(), help);
  return fmt::format("{}{}; {} says more", where, error.what(), help);
}

}  // namespace overtake
