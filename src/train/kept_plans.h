#pragma once
// Plans of one device that were found before, in the user's cache: a run that is started again is not planned again.

#include <filesystem>
#include <string>

#include "overtake/compile.h"
#include "overtake/program.h"
#include "train/workplace.h"

namespace overtake {

class KeptPlans {
 public:
  // For a step that is compiled and not ordered yet. What is kept is of the same step, spec, device and build of this
  // program. Nothing is kept of what is not measured here, of several devices, whose load changes from run to run, and
  // of orders that the user makes.
  KeptPlans(const Program& step, const RunSpec& spec, const Workplace& place, const CompileOptions& options);

  // Puts what was decided before into the program, with a note. False: there is nothing, or what there is was made in
  // less time than this run has. A file that is damaged is left aside with a note.
  bool take(Program& program) const;
  void keep(const Program& program) const;

 private:
  const Workplace& place_;
  std::filesystem::path file_;  // empty: nothing is kept
  bool may_take_ = true;
};

}  // namespace overtake
