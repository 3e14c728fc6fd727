#pragma once
// Command lines that are not understood, in the user's words.

#include <CLI/CLI.hpp>
#include <string>

namespace overtake {

// The names of the commands, in the order in which the help shows them.
std::vector<std::string> command_names(const CLI::App& app);

// What is wrong with the command line that `app` could not parse, and what was probably meant.
std::string mistake_of(const CLI::App& app, const CLI::ParseError& error);

}  // namespace overtake
