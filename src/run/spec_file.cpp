#include "run/spec_file.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/toml.h"

namespace overtake {
namespace {

using nlohmann::json;

// Null or an empty object for what no field can be: dates, tables.
json json_from(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) {
    const std::int64_t value = number->get();
    return value < 0 ? json(value) : json(static_cast<std::uint64_t>(value));
  }
  if (const auto* number = node.as_floating_point()) return number->get();
  if (const auto* is = node.as_boolean()) return is->get();
  const auto* array = node.as_array();
  if (array == nullptr) return node.is_table() ? json::object() : json();
  json all = json::array();
  for (const toml::node& one : *array) all.push_back(json_from(one));
  return all;
}

std::string toml_of_value(const json& value) {
  if (value.is_string()) return toml_string(value.get<std::string>());
  if (value.is_array()) {
    std::string list;
    for (const json& one : value) list += (list.empty() ? "" : ", ") + toml_of_value(one);
    return "[" + list + "]";
  }
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  // TOML's numbers end at 2^63 - 1: larger ones are written as text.
  constexpr auto kMostOfToml = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > kMostOfToml) return toml_string(value.dump());
  return value.dump();
}

}  // namespace

std::string toml_of(const RunSpec& spec) {
  const json given = json_of(spec);
  std::string text = "# A run of Overtake; docs/running.md says how to run it again.\n";
  for (const Field& field : fields())
    if (const auto at = given.find(field.name); at != given.end())
      text += fmt::format("{} = {}\n", field.name, toml_of_value(*at));
  return text;
}

RunSpec spec_from_toml(const std::string& text, const std::string& file, std::vector<const Field*>* given) {
  const toml::table table = parse_toml(text, file, "write a line `name = value` for each field");
  RunSpec spec;
  for (const auto& [key, node] : table) {
    const std::string where = fmt::format("{}:{}", file, key.source().begin.line);
    const Field* field = find_field(key.str());
    if (field == nullptr) fail_unknown_field(key.str(), where);
    json value = json_from(node);
    if (std::holds_alternative<std::uint64_t RunSpec::*>(field->member) && value.is_string())
      if (const json number = parse_json_or_discard(value.get<std::string>()); number.is_number_unsigned())
        value = number;
    set_value(spec, *field, value, where);
    if (given != nullptr) given->push_back(field);
  }
  return spec;
}

RunSpec read_spec(const std::filesystem::path& file, std::vector<const Field*>* given) {
  return spec_from_toml(read_file(file), file.string(), given);
}

void write_spec(const std::filesystem::path& file, const RunSpec& spec) {
  const std::string text = toml_of(spec);
  try {
    spec_from_toml(text, file.string());
  } catch (const UserError&) {
    fail_user("{}: it cannot be written: TOML is UTF-8, and a name in this run is not; rename that file",
              file.string());
  }
  write_file_atomically(file, text);
}

}  // namespace overtake
