#include "machine/cluster_units.h"

#include <algorithm>
#include <cctype>
#include <span>

#include "base/error.h"

namespace overtake {
namespace {

__extension__ using Wide = __int128;

// One of the unit is num / den base units.
struct Unit {
  std::string_view name;
  std::int64_t num = 1;
  std::int64_t den = 1;
};

constexpr std::int64_t kKilo = 1'000, kMega = 1'000'000, kGiga = 1'000'000'000, kTera = 1'000'000'000'000,
                       kPeta = 1'000'000'000'000'000;

// Smallest first; those with a power of 1024 come after the others.
constexpr Unit kCount[] = {{""}, {"entries"}};
constexpr Unit kBytes[] = {{"B"},         {"KB", kKilo},      {"MB", kMega},      {"GB", kGiga},     {"TB", kTera},
                           {"KiB", 1024}, {"MiB", 1ll << 20}, {"GiB", 1ll << 30}, {"TiB", 1ll << 40}};
constexpr Unit kByteRates[] = {{"B/s"}, {"KB/s", kKilo}, {"MB/s", kMega}, {"GB/s", kGiga}, {"TB/s", kTera}};
constexpr Unit kBitRates[] = {
    {"b/s", 1, 8}, {"Kb/s", kKilo, 8}, {"Mb/s", kMega, 8}, {"Gb/s", kGiga, 8}, {"Tb/s", kTera, 8}};
constexpr Unit kFlops[] = {{"FLOP/s"}, {"MFLOP/s", kMega}, {"GFLOP/s", kGiga}, {"TFLOP/s", kTera}, {"PFLOP/s", kPeta}};
constexpr Unit kTimes[] = {{"ns"}, {"us", kKilo}, {"ms", kMega}, {"s", kGiga}};

std::span<const Unit> units_of(Measure measure) {
  switch (measure) {
    case Measure::count:
      return kCount;
    case Measure::bytes:
      return kBytes;
    case Measure::bytes_per_s:
      return kByteRates;
    case Measure::bits_per_s:
      return kBitRates;
    case Measure::flops:
      return kFlops;
    case Measure::nanoseconds:
      return kTimes;
  }
  return {};
}

std::optional<Unit> find_unit(std::string_view name, Measure measure) {
  for (const Unit& unit : units_of(measure))
    if (unit.name == name) return unit;
  return std::nullopt;
}

// The unit to print in: 1 or more of it, and a power of 1024 only where it divides the value and 10^6 does not.
Unit best_unit(std::int64_t value, Measure measure) {
  const std::span<const Unit> units = units_of(measure);
  if (measure == Measure::count) return units[0];
  Unit best = units[0];
  for (const Unit& unit : units) {
    const bool is_binary = unit.num % 1024 == 0;
    if (Wide{value} * unit.den < unit.num) continue;
    if (is_binary && (value % unit.num != 0 || value % kMega == 0)) continue;
    best = unit;
  }
  return best;
}

}  // namespace

std::optional<std::int64_t> parse_quantity(std::string_view text, Measure measure) {
  constexpr int kMaxDigits = 20;
  Wide digits = 0;
  Wide scale = 1;
  int count = 0;
  bool has_point = false;
  std::size_t i = 0;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '.' && !has_point) {
      has_point = true;
      continue;
    }
    if (c < '0' || c > '9') break;
    if (++count > kMaxDigits) return std::nullopt;
    digits = digits * 10 + (c - '0');
    if (has_point) scale *= 10;
  }
  if (count == 0) return std::nullopt;
  while (i < text.size() && text[i] == ' ') ++i;
  std::optional<Unit> unit = find_unit(text.substr(i), measure);
  if (!unit && measure == Measure::bytes_per_s) unit = find_unit(text.substr(i), Measure::bits_per_s);
  if (!unit && measure == Measure::bits_per_s) unit = find_unit(text.substr(i), Measure::bytes_per_s);
  if (!unit) return std::nullopt;
  const Wide below = scale * unit->den;
  const Wide value = (digits * unit->num + below / 2) / below;
  if (value > INT64_MAX) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

std::string print_quantity(std::int64_t value, Measure measure) {
  const Unit unit = best_unit(value, measure);
  const Wide scaled = Wide{value} * unit.den;
  const auto whole = static_cast<std::int64_t>(scaled / unit.num);
  Wide rest = scaled % unit.num;
  std::string text = fmt::format("{}", whole);
  if (rest != 0) text += '.';
  while (rest != 0) {
    rest *= 10;
    text += static_cast<char>('0' + static_cast<int>(rest / unit.num));
    rest %= unit.num;
  }
  return unit.name.empty() ? text : fmt::format("{} {}", text, unit.name);
}

std::string unit_list(Measure measure) {
  if (measure == Measure::count) return "no unit";
  std::string list;
  const auto add = [&](std::span<const Unit> units) {
    for (const Unit& unit : units) list += fmt::format("{}{}", list.empty() ? "" : ", ", unit.name);
  };
  add(units_of(measure));
  if (measure == Measure::bytes_per_s) add(kBitRates);
  if (measure == Measure::bits_per_s) add(kByteRates);
  return list;
}

}  // namespace overtake
