#pragma once
// The one table of RunSpec's fields. Flags, spec files, JSON, what checkpoints keep and what ranks compare are all made
// from it: a new field is a member of RunSpec and a row here.

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "overtake/run_spec.h"

namespace overtake {

// What it means if a run that is resumed has another value than the checkpoint it takes up.
enum class OnResume : std::uint8_t {
  another_run,  // the checkpoint is refused
  allowed,      // what is computed from here on changes, as the user asks for
  last_bits,    // rounding may differ; the user is told
  free,         // the weights do not depend on it
  once          // of one start of a run alone: a checkpoint does not keep it
};

// Fields that make one setting together: a run that is resumed takes all of a group from the checkpoint, or none.
enum class Together : std::uint8_t {
  none,
  length,
  layout,
  within_layout  // goes with a layout: anew where that is given anew, and the other way round it changes no more
};

// What ranks compare when they meet.
enum class AcrossRanks : std::uint8_t {
  equal,   // the value must be the same on all
  rank_0,  // rank 0's value counts, and all ranks must have one or none
  own      // each rank has its own
};

enum class Command : std::uint8_t { train = 1, bench = 2, plan = 4, simulate = 8 };

struct Bounds {
  double least = 0;
  double most = std::numeric_limits<double>::infinity();
  bool is_below_most = false;  // `most` itself is out of bounds
};

using Member =
    std::variant<bool RunSpec::*, std::int64_t RunSpec::*, std::uint64_t RunSpec::*, std::uint32_t RunSpec::*,
                 double RunSpec::*, std::string RunSpec::*, std::vector<std::string> RunSpec::*>;

struct Field {
  // In files, flags and messages. It is the name of RunSpec's member, but for `set` (settings), `dp` (replicas), `pp`
  // (stages) and `skip_pass` (skip_passes).
  std::string_view name;
  Member member;
  // For people, of the flag: of a field that is on by default, what turning it off does. Another field is written in
  // backticks, as in errors.
  std::string help;
  OnResume on_resume;
  AcrossRanks across_ranks;
  std::uint8_t commands = static_cast<std::uint8_t>(Command::train);
  Bounds bounds = {};                          // of numbers
  std::vector<std::string_view> choices = {};  // of texts; empty: any
  bool has_own_place = false;      // in a checkpoint: train/checkpoint.h has a member for it, beside the settings
  bool decides_plan = false;       // a program that was compiled for another value is another one
  bool describes_machine = false;  // for which a program is compiled
  Together group = Together::none;

  bool is_of(Command command) const { return (commands & static_cast<std::uint8_t>(command)) != 0; }
};

const std::vector<Field>& fields();
// Null where there is none of that name.
const Field* find_field(std::string_view name);
// The error of a name in a file, or another text, that is no field's: it says which may have been meant.
[[noreturn]] void fail_unknown_field(std::string_view name, const std::string& where);

// Null for a number that is not given; see RunSpec.
nlohmann::json value_of(const RunSpec& spec, const Field& field);
// A value of another type or out of bounds is a user error that begins with `where` (a file and a line) or, if that is
// empty, with the field in backticks; nothing is changed then.
void set_value(RunSpec& spec, const Field& field, const nlohmann::json& value, const std::string& where = {});
// The same from text, as on a command line: one word, or for a list any number.
void set_text(RunSpec& spec, const Field& field, const std::vector<std::string>& words);
// The same of all fields that are not as by default, for specs that are made in C++.
void check_fields(const RunSpec& spec);
// What a value must be: "a whole number of at least 1".
std::string description_of(const Field& field);
// A value as the user may have written it.
std::string value_text(const nlohmann::json& value);
// A field with a value as a user would give them, in backticks; "no" before a field that is not given.
std::string as_given(std::string_view field, const nlohmann::json& value);

// All that is given, by name; and back.
nlohmann::json json_of(const RunSpec& spec);
RunSpec spec_from_json(const nlohmann::json& json);

// The fields that decide a program as they are in `spec`, all others as by default.
RunSpec deciding_part(const RunSpec& spec);

// What all ranks of a job must have in common, a line for each field.
std::string identity_of(const RunSpec& spec);

}  // namespace overtake
