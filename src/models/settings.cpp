#include "models/settings.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "overtake/zoo.h"

namespace overtake {
namespace {

std::optional<double> value_of(const std::string& name, const std::string& text) {
  if (name == "norm" && text == "batch") return 0;
  if (name == "norm" && text == "group") return 32;
  double value = 0;
  const char* last = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), last, value);
  if (text.empty() || error != std::errc() || stop != last) return {};
  return value;
}

}  // namespace

ModelSettings ModelSettings::parse(const std::string& text) {
  std::map<std::string, double> given;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, end - at);
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, equals);
    const auto value = value_of(name, word.substr(std::min(equals + 1, word.size())));
    if (name.empty() || !value)
      fail_user("`set {}`: '{}' is no NAME=NUMBER; write for example `set layers=6,width=512`", text, word);
    given[name] = *value;
    at = end + 1;
  }
  return ModelSettings(given);
}

std::int64_t Settings::whole(const std::string& name, std::int64_t least, std::int64_t most) const {
  const double value = values_.at(name);
  // Written so that NaN fails too.
  if (!(value >= static_cast<double>(least) && value <= static_cast<double>(most)) || value != std::floor(value))
    fail_user("model {}: setting {} is {}; it must be a whole number from {} to {}", model_, name, value, least, most);
  return static_cast<std::int64_t>(value);
}

std::int64_t Settings::divisor(const std::string& name, const std::string& of) const {
  const std::int64_t value = whole(name), divided = whole(of);
  if (divided % value != 0)
    fail_user("model {}: setting {} is {}, which does not divide {}, {}; change one of them", model_, name, value, of,
              divided);
  return value;
}

double Settings::fraction(const std::string& name) const {
  const double value = values_.at(name);
  if (!(value >= 0 && value < 1))
    fail_user("model {}: setting {} is {}; it must be at least 0 and below 1", model_, name, value);
  return value;
}

double Settings::positive(const std::string& name) const {
  const double value = values_.at(name);
  if (!(value > 0 && value <= 16))
    fail_user("model {}: setting {} is {}; it must be above 0 and at most 16", model_, name, value);
  return value;
}

}  // namespace overtake
