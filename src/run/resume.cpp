#include "run/resume.h"

#include "base/error.h"
#include "run/field.h"

namespace overtake {
namespace {

// Also of what is not UTF-8, such as names of files.
std::string text_of(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

nlohmann::json kept_in_checkpoint(const RunSpec& spec) {
  nlohmann::json kept = nlohmann::json::object();
  for (const Field& field : fields()) {
    if (field.on_resume == OnResume::free || field.has_own_place) continue;
    if (nlohmann::json value = value_of(spec, field); !value.is_null())
      kept[std::string(field.name)] = std::move(value);
  }
  return kept;
}

void check_kept(const nlohmann::json& kept) {
  RunSpec taken;
  for (const auto& [name, value] : kept.items())
    if (const Field* field = find_field(name)) set_value(taken, *field, value, "settings");
}

std::vector<std::string> compare_with_kept(const nlohmann::json& kept, const nlohmann::json& now,
                                           const std::string& name) {
  std::vector<std::string> notes;
  for (const auto& [setting, value] : now.items()) {
    if (!kept.contains(setting) || kept[setting] == value) continue;
    const Field* field = find_field(setting);
    const OnResume meaning = field == nullptr ? OnResume::another_run : field->on_resume;
    if (meaning == OnResume::another_run) fail_another_run(name, setting, kept[setting], value);
    if (meaning == OnResume::last_bits)
      notes.push_back(fmt::format("resume {}: it was made with {} {}, this run has {}: the last bits may differ", name,
                                  setting, text_of(kept[setting]), text_of(value)));
  }
  return notes;
}

void fail_another_run(const std::string& name, const std::string& what, const nlohmann::json& kept,
                      const nlohmann::json& now) {
  fail_user(
      "`resume {}`: it was made with {} {}, but this run has {}; give the same options, or start anew without `resume`",
      name, what, text_of(kept), text_of(now));
}

}  // namespace overtake
