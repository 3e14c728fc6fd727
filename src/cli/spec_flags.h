#pragma once
// A RunSpec from the command line: a flag for each field of its table, and files of them.

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/output_file.h"
#include "overtake/program.h"
#include "run/field.h"

namespace overtake {

inline constexpr std::string_view kPlanEnding = ".plan";  // of files that may stand for a MODEL

class SpecFlags {
 public:
  void add_to(CLI::App& app, Command command);
  // Defaults, over them the file of --spec, over that what is on the command line.
  RunSpec spec(bool needs_model = true) const;
  // The fields that are on the command line or in the file.
  std::vector<const Field*> given() const;
  // For before long work: --save-spec, --save-plan, and what else a command writes.
  void check_outputs(const std::vector<OutputFile>& others = {}) const;
  // For when all of the run has been checked: --save-spec.
  void save(const RunSpec& spec) const;
  void save_plan(const Program& program) const;  // --save-plan
  bool saves_plan() const { return !save_plan_to_.empty(); }
  bool saves() const { return !save_to_.empty(); }

  bool json = false;          // one JSON object as the last line
  bool print_passes = false;  // to stderr
  bool overwrite = false;     // files and checkpoints that are there already

 private:
  struct Given {
    const Field* field;
    std::vector<std::string> words;
  };
  void add_field(CLI::App& app, const Field& field);

  std::vector<Given> given_;
  std::string file_, save_to_, save_plan_to_;
};

// A user error if a field that decides a program is given another value than the plan has, or one that describes the
// machine is given at all: the plan has a machine.
void check_agrees(const Program& program, const std::string& file, const RunSpec& spec,
                  const std::vector<const Field*>& given);
// The run that the spec's plan file is of, with what else is said of it.
RunSpec with_plan(const RunSpec& spec, const std::vector<const Field*>& given);

// The front door's spelling of a text in which fields are in backticks: "`lr_schedule x`: ..." is "--lr-schedule x:
// ...", and "`graph false`" is "--no-graph".
std::string with_flags(std::string_view text);

// A line for the user, with_flags.
void print_note(const std::string& line);

}  // namespace overtake
