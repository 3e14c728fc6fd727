#pragma once
// The one reader of JSON. Its text may come from a file or another process, so nothing of it is trusted.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace overtake {

// Arrays and objects inside one another. What works on a value (copies, comparisons, printing) calls itself for each
// level, so that a deeper one would overflow the stack. Files of ours and of profilers have a dozen levels.
inline constexpr std::size_t kMostJsonDepth = 64;

// Throws json::parse_error for what is not JSON, nested deeper, or a number that no double can hold. `take` sees every
// value as soon as it is complete, as json::parse() describes it.
nlohmann::json parse_json(std::string_view text, const nlohmann::json::parser_callback_t& take = nullptr);

// The same for readers that have nothing to say about the error: the value is_discarded() then.
nlohmann::json parse_json_or_discard(std::string_view text);

template <class T>
inline constexpr bool is_list_v = false;
template <class T>
inline constexpr bool is_list_v<std::vector<T>> = true;

// json::get(), which would cut a number to fit: 1.5 to 1, and 65536 to 0 in 16 bits. Whole numbers that are none, or
// out of range, are json::type_error here, in lists too.
template <class T>
T checked(const nlohmann::json& value) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    const bool fits = value.is_number_unsigned()  ? std::in_range<T>(value.get<std::uint64_t>())
                      : value.is_number_integer() ? std::in_range<T>(value.get<std::int64_t>())
                                                  : false;
    if (!fits)
      throw nlohmann::json::type_error::create(
          302, std::string(value.type_name()) + " where a whole number in range must be", nullptr);
    return value.get<T>();
  } else if constexpr (std::is_enum_v<T>) {
    return static_cast<T>(checked<std::underlying_type_t<T>>(value));
  } else if constexpr (is_list_v<T>) {
    if (!value.is_array()) return value.get<T>();  // which throws
    T list;
    list.reserve(value.size());
    for (const nlohmann::json& one : value) list.push_back(checked<typename T::value_type>(one));
    return list;
  } else {
    return value.get<T>();
  }
}

}  // namespace overtake

// As NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE: a structure as an object of its members, which are read by checked().
#define OVERTAKE_JSON_FROM(member) from.member = ::overtake::checked<decltype(from.member)>(json_of_it.at(#member));
#define OVERTAKE_JSON_TO(member) json_of_it[#member] = from.member;
#define OVERTAKE_JSON_STRUCT(Type, ...)                                        \
  inline void to_json(nlohmann::json& json_of_it, const Type& from) {          \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(OVERTAKE_JSON_TO, __VA_ARGS__))   \
  }                                                                            \
  inline void from_json(const nlohmann::json& json_of_it, Type& from) {        \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(OVERTAKE_JSON_FROM, __VA_ARGS__)) \
  }
