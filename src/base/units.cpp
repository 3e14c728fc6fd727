#include "base/units.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cmath>
#include <span>

#include "base/error.h"

namespace overtake {
namespace {

// Three significant digits: "1.21", "25.6", "512".
std::string three_digits(double value) {
  const double size = std::abs(value);
  // The bounds are where the next shorter form would round up to the same text.
  const int decimals = size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}", value, decimals);
}

// The largest unit in which the value, rounded, is at least one: `step` apart, the first without decimals.
template <std::size_t N>
std::string with_unit(std::int64_t amount, double step, const std::array<const char*, N>& units) {
  double value = static_cast<double>(amount);
  if (std::abs(value) < step) return fmt::format("{}{}", amount, units[0]);
  std::size_t unit = 0;
  while (std::abs(value) >= step - 0.5 && unit + 1 < N) {
    value /= step;
    ++unit;
  }
  return three_digits(value) + units[unit];
}

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
constexpr Unit kShortSizes[] = {{""}, {"K", 1ll << 10}, {"M", 1ll << 20}, {"G", 1ll << 30}, {"T", 1ll << 40}};
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

bool equal_in_lower_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return std::ranges::equal(a, b, [&](char x, char y) { return lower(x) == lower(y); });
}

std::optional<Unit> find_unit(std::string_view name, Measure measure) {
  const bool is_size = measure == Measure::bytes;
  const auto matches = [&](const Unit& unit) {
    return is_size ? equal_in_lower_case(unit.name, name) : unit.name == name;
  };
  for (const Unit& unit : units_of(measure))
    if (matches(unit)) return unit;
  if (is_size)
    for (const Unit& unit : kShortSizes)
      if (matches(unit)) return unit;
  // A rate is of bits or of bytes, and says which by its case.
  if (measure == Measure::bytes_per_s || measure == Measure::bits_per_s)
    for (const Unit& unit : measure == Measure::bytes_per_s ? std::span(kBitRates) : std::span(kByteRates))
      if (unit.name == name) return unit;
  return std::nullopt;
}

// The unit to print in: 1 or more of it, and a power of 1024 only where it divides the value and 10^6 does not.
Unit best_unit(std::int64_t value, Measure measure) {
  const std::span<const Unit> units = units_of(measure);
  if (measure == Measure::count) return units[0];
  Unit best = units[0];
  for (const Unit& unit : units) {
    const bool is_binary = unit.num > 1 && std::has_single_bit(static_cast<std::uint64_t>(unit.num));
    if (Wide{value} * unit.den < unit.num) continue;
    if (is_binary && (value % unit.num != 0 || value % kMega == 0)) continue;
    best = unit;
  }
  return best;
}

}  // namespace

std::string format_bytes(std::int64_t bytes) {
  return with_unit<6>(bytes, 1024, {" B", " KiB", " MiB", " GiB", " TiB", " PiB"});
}

std::string format_count(std::int64_t count) { return with_unit<6>(count, 1000, {"", " K", " M", " G", " T", " P"}); }

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return fmt::format("{} s", seconds);
  if (seconds < 0) return "-" + format_duration(-seconds);
  if (seconds == 0) return "0 s";
  if (seconds < 999.5e-9) return three_digits(seconds * 1e9) + " ns";
  if (seconds < 999.5e-6) return three_digits(seconds * 1e6) + " us";
  if (seconds < 999.5e-3) return three_digits(seconds * 1e3) + " ms";
  if (seconds < 59.95) return three_digits(seconds) + " s";
  const double whole = std::round(seconds);
  if (whole < 3600) return fmt::format("{:.0f} min {:02.0f} s", std::floor(whole / 60), std::fmod(whole, 60));
  const double minutes = std::round(seconds / 60);
  return fmt::format("{:.0f} h {:02.0f} min", std::floor(minutes / 60), std::fmod(minutes, 60));
}

std::optional<std::int64_t> parse_quantity(std::string_view text, Measure measure) {
  // As many as can matter: the others are of a number that does not fit, or far behind the point.
  constexpr int kMaxDigits = 22;
  Wide digits = 0;
  Wide scale = 1;
  int count = 0;  // of the digits kept, without zeros in front
  bool has_digit = false, has_point = false;
  std::size_t i = 0;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '.' && !has_point) {
      has_point = true;
      continue;
    }
    if (c < '0' || c > '9') break;
    has_digit = true;
    if (count == kMaxDigits && has_point) continue;
    if (count == kMaxDigits) return std::nullopt;
    digits = digits * 10 + (c - '0');
    if (has_point) scale *= 10;
    if (digits != 0 || has_point) ++count;
  }
  if (!has_digit) return std::nullopt;
  while (i < text.size() && text[i] == ' ') ++i;
  const std::optional<Unit> unit = find_unit(text.substr(i), measure);
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

std::int64_t parse_bytes(std::string_view text, std::string_view where) {
  const std::optional<std::int64_t> bytes = parse_quantity(text, Measure::bytes);
  if (!bytes) fail_user("{}: not a size in bytes: \"{}\"; write it as 100000, 512MiB or 2G", where, text);
  return *bytes;
}

}  // namespace overtake
