#include "base/units.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

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

struct SizeSuffix {
  std::string_view text;  // lower case
  double factor;
};

constexpr std::array<SizeSuffix, 14> kSizeSuffixes{{{"", 1},
                                                    {"b", 1},
                                                    {"k", 0x1p10},
                                                    {"kib", 0x1p10},
                                                    {"kb", 1e3},
                                                    {"m", 0x1p20},
                                                    {"mib", 0x1p20},
                                                    {"mb", 1e6},
                                                    {"g", 0x1p30},
                                                    {"gib", 0x1p30},
                                                    {"gb", 1e9},
                                                    {"t", 0x1p40},
                                                    {"tib", 0x1p40},
                                                    {"tb", 1e12}}};

// 0 when there is no such suffix.
double suffix_factor(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  std::string lower;
  for (const char c : text) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const SizeSuffix& suffix : kSizeSuffixes) {
    if (suffix.text == lower) return suffix.factor;
  }
  return 0;
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

std::int64_t parse_bytes(std::string_view text, std::string_view where) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  const double factor =
      error == std::errc() ? suffix_factor(text.substr(static_cast<std::size_t>(end - text.data()))) : 0;
  const double bytes = number * factor;
  constexpr double too_many = 0x1p63;
  if (factor == 0 || !(number >= 0) || bytes >= too_many) {
    fail_user("{}: not a size in bytes: \"{}\"; write it as 100000, 512MiB or 2G", where, text);
  }
  // Whole numbers without a unit beyond 2^53 would lose bits as a double.
  std::int64_t exact = 0;
  const auto whole = std::from_chars(text.data(), text.data() + text.size(), exact);
  if (factor == 1 && whole.ec == std::errc() && whole.ptr == end) return exact;
  return static_cast<std::int64_t>(std::llround(bytes));
}

}  // namespace overtake
