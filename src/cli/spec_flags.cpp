#include "cli/spec_flags.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "cli/say.h"
#include "run/spec_file.h"
#include "train/planner.h"

namespace overtake {
namespace {

constexpr std::string_view kPositional = "model";
// Flags that are no field of a run, which errors outside src/cli name as they name fields.
constexpr std::array<std::string_view, 3> kOtherFlags = {"measure", "save_profile", "overwrite"};

std::string flag_of(std::string_view name) {
  std::string flag = "--" + std::string(name);
  std::ranges::replace(flag, '_', '-');
  return flag;
}

// "lr_schedule x" as it is on a command line; nothing where it is about no flag.
std::optional<std::string> on_command_line(std::string_view quoted) {
  const std::size_t space = std::min(quoted.find(' '), quoted.size());
  const std::string_view name = quoted.substr(0, space), value = quoted.substr(space);
  const Field* const field = find_field(name);
  if (field == nullptr && std::ranges::find(kOtherFlags, name) == kOtherFlags.end()) return {};
  if (name == kPositional) return fmt::format("MODEL{}", value);
  if (field != nullptr && std::holds_alternative<bool RunSpec::*>(field->member)) {
    if (value == " true") return flag_of(name);
    if (value == " false") return flag_of(fmt::format("no_{}", name));
  }
  return flag_of(name) + std::string(value);
}

// With bounds, where there are any but 0.
std::string type_shown(const Field& field) {
  const auto shown = [&]<class T>(T RunSpec::*) -> std::string {
    if constexpr (!std::is_arithmetic_v<T>) return "TEXT";
    const std::string kind = std::is_floating_point_v<T> ? "FLOAT" : "INT";
    const Bounds& b = field.bounds;
    if (!std::isfinite(b.most)) return b.least == 0 ? kind : fmt::format("{}>={}", kind, b.least);
    return fmt::format("{} in [{}, {}{}", kind, b.least, b.most, b.is_below_most ? ")" : "]");
  };
  return std::visit(shown, field.member);
}

// Empty where the help says what holds instead.
std::string default_shown(const Field& field) {
  const nlohmann::json value = value_of(RunSpec{}, field);
  if (value.is_null() || value.is_array() || field.help.find("default:") != std::string::npos) return "";
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

void SpecFlags::add_field(CLI::App& app, const Field& field) {
  const Field* const f = &field;
  const std::string flag = flag_of(field.name), help = with_flags(field.help);
  if (const auto* member = std::get_if<bool RunSpec::*>(&field.member)) {
    // The flag that changes the default is shown; the other is for what a file says.
    const bool is_on = RunSpec{}.*(*member);
    const auto add = [&](const std::string& name, const char* word) {
      return app.add_flag_callback(
          name,
          [this, f, word] {
            given_.push_back({f, {word}});
          },
          help);
    };
    CLI::Option* const on = add(flag, "true");
    CLI::Option* const off = add("--no-" + flag.substr(2), "false");
    (is_on ? on : off)->group("");
  } else if (std::holds_alternative<std::vector<std::string> RunSpec::*>(field.member)) {
    app.add_option_function<std::vector<std::string>>(
           flag,
           [this, f](const std::vector<std::string>& words) {
             given_.push_back({f, words});
           },
           help)
        ->delimiter(',')
        ->type_name(type_shown(field));
  } else {
    app.add_option_function<std::string>(
           field.name == kPositional ? "MODEL"
           : field.name == "machine" ? flag + ",--cluster"
                                     : flag,
           [this, f](const std::string& word) {
             given_.push_back({f, {word}});
           },
           help)
        ->type_name(type_shown(field))
        ->default_str(default_shown(field));
  }
}

void SpecFlags::add_to(CLI::App& app, Command command) {
  for (const Field& field : fields())
    if (field.is_of(command)) add_field(app, field);
  app.add_option("--spec", file_, "TOML file with some or all of these, MODEL as model; flags go before it");
  app.add_option("--save-spec", save_to_, "writes this run as such a file, once all of it has been checked");
  if (command == Command::train || command == Command::simulate)
    app.add_option("--save-plan", save_plan_to_, "writes the plan that is used, as `overtake plan` does");
  app.add_flag("--overwrite", overwrite, "replace files that are there already, and a checkpoint of another run");
  app.add_flag("--print-passes", print_passes, "print the graph after every pass that changed it (to stderr)");
  app.add_flag("--json", json, "one JSON object as the last line");
}

RunSpec SpecFlags::spec(bool needs_model) const {
  RunSpec spec = file_.empty() ? RunSpec{} : read_spec(file_);
  for (const Given& g : given_) {
    if (std::ranges::count(given_, g.field, &Given::field) > 1)
      fail_user("`{}`: it is turned both on and off; give one of the two", g.field->name);
    set_text(spec, *g.field, g.words);
  }
  if (needs_model && spec.model.empty() && spec.plan.empty() && spec.resume.empty()) {
    if (file_.empty()) fail_user("MODEL is required; see --help");
    fail_user("--spec {}: it names no model; add a line model = \"cnn\", or give MODEL", file_);
  }
  return spec;
}

std::vector<const Field*> SpecFlags::given() const {
  std::vector<const Field*> all;
  for (const Given& g : given_) all.push_back(g.field);
  if (file_.empty()) return all;
  read_spec(file_, &all);
  return all;
}

void SpecFlags::save_plan(const Program& program) const {
  if (!save_plan_to_.empty()) write_file_atomically(save_plan_to_, save_json(program));
}

void SpecFlags::check_outputs(const std::vector<OutputFile>& others) const {
  check_output({"--save-plan", save_plan_to_, kPlanFile}, overwrite);
  check_output({"--save-spec", save_to_, kSpecFile}, overwrite);
  for (const OutputFile& other : others) check_output(other, overwrite);
}

void SpecFlags::save(const RunSpec& spec) const {
  if (!save_to_.empty()) write_spec(save_to_, spec);
}

void check_agrees(const Program& program, const std::string& file, const RunSpec& spec,
                  const std::vector<const Field*>& given) {
  for (const Field* field : given) {
    if (field->describes_machine && value_of(spec, *field) != value_of(RunSpec{}, *field))
      fail_user("`{}`: plan {} is for machine {} as it was; leave it out, or plan again", field->name, file,
                program.machine.name());
    if (!field->decides_plan) continue;
    const nlohmann::json planned = value_of(program.spec, *field), now = value_of(spec, *field);
    if (planned != now)
      fail_user("`{}`: it is {} here, and {} in plan {}; leave it out, or plan again", field->name, now.dump(),
                planned.dump(), file);
  }
}

RunSpec with_plan(const RunSpec& spec, const std::vector<const Field*>& given) {
  const Program program = read_program(spec.plan, fmt::format("`plan {}`", spec.plan));
  check_agrees(program, spec.plan, spec, given);
  RunSpec merged = spec;
  for (const Field& field : fields())
    if (field.decides_plan) std::visit([&](auto member) { merged.*member = program.spec.*member; }, field.member);
  return merged;
}

std::string with_flags(std::string_view text) {
  std::string out;
  for (;;) {
    const std::size_t begin = text.find('`');
    out += text.substr(0, begin);
    if (begin == std::string_view::npos) return out;
    text.remove_prefix(begin + 1);
    const std::size_t end = text.find('`');
    if (end == std::string_view::npos) return out + "`" + std::string(text);
    const std::string_view quoted = text.substr(0, end);
    text.remove_prefix(end + 1);
    out += on_command_line(quoted).value_or(fmt::format("`{}`", quoted));
  }
}

void print_note(const std::string& line) { say(stderr, "{}\n", with_flags(line)); }

}  // namespace overtake
