#include "run/field.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/nearest_word.h"

namespace overtake {
namespace {

using nlohmann::json;

template <class T>
constexpr bool is_whole_v = std::is_integral_v<T> && !std::is_same_v<T, bool>;

bool is_within(const Bounds& bounds, double x) {
  return std::isfinite(x) && x >= bounds.least && (bounds.is_below_most ? x < bounds.most : x <= bounds.most);
}

bool is_choice(const Field& field, const json& value) {
  if (!value.is_string()) return false;
  return field.choices.empty() || std::ranges::find(field.choices, value.get<std::string>()) != field.choices.end();
}

// Whether it can be taken as it is.
bool fits(const Field& field, const json& value) {
  const auto fits_type = [&]<class T>(T RunSpec::*) {
    if constexpr (std::is_same_v<T, bool>) {
      return value.is_boolean();
    } else if constexpr (is_whole_v<T>) {
      if (!value.is_number_integer()) return false;
      const bool is_in_range = value.is_number_unsigned() ? std::in_range<T>(value.get<std::uint64_t>())
                                                          : std::in_range<T>(value.get<std::int64_t>());
      return is_in_range && is_within(field.bounds, value.get<double>());
    } else if constexpr (std::is_same_v<T, double>) {
      return value.is_number() && is_within(field.bounds, value.get<double>());
    } else if constexpr (std::is_same_v<T, std::string>) {
      return is_choice(field, value);
    } else {
      return value.is_array() && std::ranges::all_of(value, [&](const json& one) { return is_choice(field, one); });
    }
  };
  return std::visit(fits_type, field.member);
}

template <class Number>
json number_from(const std::string& text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? json(number) : json(text);
}

// What may have been meant instead of a text that is none of the choices.
std::string meant_instead(const Field& field, const json& value) {
  const std::vector<std::string> known(field.choices.begin(), field.choices.end());
  for (const json& word : value.is_array() ? value : json::array({value}))
    if (!is_choice(field, word)) return word.is_string() ? did_you_mean(word.get<std::string>(), known) : "";
  return "";
}

// See set_value().
void check_value(const Field& field, const json& value, const std::string& where) {
  if (fits(field, value)) return;
  const std::string meant = meant_instead(field, value);
  if (where.empty()) fail_user("`{} {}`: it must be {}{}", field.name, value_text(value), description_of(field), meant);
  fail_user("{}: {} = {}: it must be {}{}", where, field.name, value.is_string() ? value.dump() : value_text(value),
            description_of(field), meant);
}

bool is_empty(const json& value) {
  return value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty()) ||
         (value.is_array() && value.empty());
}

}  // namespace

const Field* find_field(std::string_view name) {
  const auto at = std::ranges::find(fields(), name, &Field::name);
  return at == fields().end() ? nullptr : &*at;
}

void fail_unknown_field(std::string_view name, const std::string& where) {
  fail_user("{}: {}: no such field{}", where, name,
            did_you_mean(name, fields(), [](const Field& f) { return f.name; }));
}

json value_of(const RunSpec& spec, const Field& field) {
  json value = std::visit([&](auto member) { return json(spec.*member); }, field.member);
  return value.is_number() && !fits(field, value) ? json() : value;
}

void set_value(RunSpec& spec, const Field& field, const json& value, const std::string& where) {
  check_value(field, value, where);
  std::visit([&]<class T>(T RunSpec::*member) { spec.*member = value.get<T>(); }, field.member);
}

void check_fields(const RunSpec& spec) {
  const RunSpec none;
  for (const Field& field : fields()) {
    const auto check = [&](auto member) {
      if (spec.*member != none.*member) check_value(field, json(spec.*member), "");
    };
    std::visit(check, field.member);
  }
}

void set_text(RunSpec& spec, const Field& field, const std::vector<std::string>& words) {
  const std::string text = fmt::format("{}", fmt::join(words, ","));
  const auto value_from = [&]<class T>(T RunSpec::*) -> json {
    if constexpr (std::is_same_v<T, bool>)
      return text == "true" ? json(true) : text == "false" ? json(false) : json(text);
    else if constexpr (std::is_same_v<T, std::vector<std::string>>)
      return words;
    else if constexpr (std::is_same_v<T, std::string>)
      return text;
    else if constexpr (is_whole_v<T>)
      return text.starts_with('-') ? number_from<std::int64_t>(text) : number_from<std::uint64_t>(text);
    else
      return number_from<T>(text);
  };
  set_value(spec, field, std::visit(value_from, field.member));
}

std::string description_of(const Field& field) {
  const auto bounded = [&](std::string kind) {
    const Bounds& b = field.bounds;
    if (!std::isfinite(b.most)) return fmt::format("{} of at least {}", kind, b.least);
    return b.is_below_most ? fmt::format("{} of at least {} and below {}", kind, b.least, b.most)
                           : fmt::format("{} from {} to {}", kind, b.least, b.most);
  };
  const auto describe = [&]<class T>(T RunSpec::*) -> std::string {
    constexpr bool is_list = std::is_same_v<T, std::vector<std::string>>;
    if constexpr (std::is_same_v<T, bool>) return "true or false";
    if constexpr (is_whole_v<T>) return bounded("a whole number");
    if constexpr (std::is_same_v<T, double>) return bounded("a number");
    if (field.choices.empty()) return is_list ? "a list of texts" : "a text";
    return fmt::format("{} {}", is_list ? "a list of some of" : "one of", fmt::join(field.choices, ", "));
  };
  return std::visit(describe, field.member);
}

std::string value_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  if (value.is_array()) {
    std::vector<std::string> all;
    for (const json& one : value) all.push_back(value_text(one));
    return fmt::format("{}", fmt::join(all, ","));
  }
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string as_given(std::string_view field, const json& value) {
  return is_empty(value) ? fmt::format("no `{}`", field) : fmt::format("`{} {}`", field, value_text(value));
}

json json_of(const RunSpec& spec) {
  json all = json::object();
  for (const Field& field : fields())
    if (json value = value_of(spec, field); !is_empty(value)) all[std::string(field.name)] = std::move(value);
  return all;
}

RunSpec spec_from_json(const json& all) {
  if (!all.is_object()) fail_user("spec: it must be a JSON object, with a field by each name");
  RunSpec spec;
  for (const auto& [name, value] : all.items()) {
    const Field* field = find_field(name);
    if (field == nullptr) fail_unknown_field(name, "spec");
    set_value(spec, *field, value, "spec");
  }
  return spec;
}

RunSpec deciding_part(const RunSpec& spec) {
  RunSpec part;
  for (const Field& field : fields())
    if (field.decides_plan) std::visit([&](auto member) { part.*member = spec.*member; }, field.member);
  return part;
}

std::string identity_of(const RunSpec& spec) {
  std::string text;
  for (const Field& field : fields()) {
    if (field.across_ranks == AcrossRanks::own) continue;
    const json value = value_of(spec, field);
    const bool is_compared = field.across_ranks == AcrossRanks::equal;
    text += fmt::format("{} = {}\n", field.name,
                        is_compared       ? value.dump(-1, ' ', false, json::error_handler_t::replace)
                        : is_empty(value) ? "none"
                                          : "given");
  }
  return text;
}

}  // namespace overtake
