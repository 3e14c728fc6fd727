#include "run/resume.h"

#include <algorithm>

#include "base/error.h"

namespace overtake {
namespace {

using nlohmann::json;

json value_at(const json& settings, std::string_view name) {
  const auto found = settings.find(name);
  return found == settings.end() ? json() : *found;
}

[[noreturn]] void fail_another_run(const std::string& name, std::string_view setting, const json& kept,
                                   const json& now) {
  fail_user(
      "{}: that makes it another run: the one in {} was made with {}; leave it out, or start anew without `resume`",
      as_given(setting, now), name, as_given(setting, kept));
}

std::string line_of_change(const Field& field, const json& kept, const json& now, const std::string& name) {
  std::string line = fmt::format("`resume {}`: {} from here on, it was made with {}", name, as_given(field.name, now),
                                 as_given(field.name, kept));
  if (field.on_resume == OnResume::last_bits) line += ": the last bits may differ";
  return line;
}

// Of data that has another name. Empty: nothing is to be said yet.
std::string line_of_data(const json& kept, const json& now, const std::string& name) {
  const json content = value_at(kept, kDataContent);
  if (content.is_null()) fail_another_run(name, "data", kept["data"], now["data"]);
  // Another content is found when it is compared itself.
  if (value_at(now, kDataContent) != content) return "";
  return fmt::format("`resume {}`: {} from here on, with the same content as {}", name, as_given("data", now["data"]),
                     as_given("data", kept["data"]));
}

// The fields of `given`, and those that make one setting with them.
bool is_given_anew(const Field& field, const std::vector<const Field*>& given) {
  const Together leader = field.group == Together::within_layout ? Together::layout : field.group;
  return std::ranges::any_of(
      given, [&](const Field* g) { return g == &field || (leader != Together::none && g->group == leader); });
}

}  // namespace

json kept_in_checkpoint(const RunSpec& spec) {
  json kept = json::object();
  for (const Field& field : fields()) {
    if (field.on_resume == OnResume::once || field.has_own_place) continue;
    if (json value = value_of(spec, field); !value.is_null()) kept[std::string(field.name)] = std::move(value);
  }
  return kept;
}

void check_kept(const json& kept) {
  RunSpec taken;
  for (const auto& [name, value] : kept.items())
    if (const Field* field = find_field(name); field != nullptr && !value.is_null() && value != "")
      set_value(taken, *field, value, "settings");
}

RunSpec taken_up(const json& kept, const RunSpec& asked, const std::vector<const Field*>& given,
                 const std::string& name) {
  RunSpec spec;
  for (const Field& field : fields()) {
    const json value = value_at(kept, field.name);
    if (field.on_resume == OnResume::once || is_given_anew(field, given))
      std::visit([&](auto member) { spec.*member = asked.*member; }, field.member);
    else if (!value.is_null() && value != "")
      set_value(spec, field, value, fmt::format("`resume {}`: the checkpoint is damaged", name));
  }
  return spec;
}

std::vector<std::string> compare_with_kept(const json& kept, const json& now, const std::string& name) {
  std::vector<std::string> lines;
  for (const Field& field : fields()) {
    const json before = value_at(kept, field.name), after = value_at(now, field.name);
    if (before == after || field.on_resume == OnResume::once || !kept.contains(field.name)) continue;
    if (field.name == "data") {
      if (std::string line = line_of_data(kept, now, name); !line.empty()) lines.push_back(std::move(line));
      continue;
    }
    if (field.on_resume == OnResume::another_run) fail_another_run(name, field.name, before, after);
    lines.push_back(line_of_change(field, before, after, name));
  }
  for (const auto& [setting, value] : now.items()) {
    if (find_field(setting) != nullptr || !kept.contains(setting) || kept[setting] == value) continue;
    if (setting == kDataContent)
      fail_user(
          "{}: its content is not what the run in {} was trained on: that was {}, this is {}; give the same data, or "
          "start anew without `resume`",
          as_given("data", value_at(now, "data")), name, value_text(kept[setting]), value_text(value));
    fail_user("`resume {}`: it was made with {} {}, but this run has {}; start anew without `resume`", name, setting,
              value_text(kept[setting]), value_text(value));
  }
  return lines;
}

}  // namespace overtake
