// Mutations that keep JSON readable. Bytes changed at random mostly break it, and then the reader refuses the file
// before anything else has seen it; here values are changed, removed, repeated and exchanged.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace {

using nlohmann::json;
using Random = std::minstd_rand;

std::size_t below(std::size_t count, Random& random) { return random() % count; }

// A value, and the array or object it is in.
struct Place {
  json* value = nullptr;
  json* in = nullptr;  // null: the whole
};

void collect(json& value, json* in, std::vector<Place>& places) {
  places.push_back({&value, in});
  if (value.is_structured())
    for (json& inner : value) collect(inner, &value, places);
}

// Others than the JSON library would write as they are.
json odd_value(Random& random) {
  static const json kValues[] = {nullptr,
                                 true,
                                 0,
                                 1,
                                 -1,
                                 2,
                                 65535,
                                 65536,
                                 INT32_MAX,
                                 UINT32_MAX,
                                 INT64_MAX,
                                 INT64_MIN,
                                 UINT64_MAX,
                                 0.5,
                                 -0.0,
                                 1e300,
                                 1e-300,
                                 "",
                                 "\u001b[31m",
                                 std::string(300, 'a'),
                                 json::array(),
                                 json::object(),
                                 json::array({1, 2})};
  return kValues[below(std::size(kValues), random)];
}

void change_number(json& value, Random& random) {
  if (value.is_number_float()) {
    const double factors[] = {-1, 0, 0.5, 2, 1e9, 1e300};
    value = value.get<double>() * factors[below(std::size(factors), random)];
  } else {
    value = static_cast<std::int64_t>(value.get<std::uint64_t>() + below(5, random) - 2);
  }
}

void change_text(json& value, Random& random) {
  const std::string text = value.get<std::string>();
  std::vector<std::uint8_t> room(text.begin(), text.end());
  room.resize(text.size() + 8);
  room.resize(LLVMFuzzerMutate(room.data(), text.size(), room.size()));
  value = std::string(room.begin(), room.end());
}

void remove(const Place& place) {
  for (auto it = place.in->begin(); it != place.in->end(); ++it) {
    if (&*it != place.value) continue;
    place.in->erase(it);
    return;
  }
}

void mutate(json& whole, const json* donor, Random& random) {
  std::vector<Place> places, donors;
  collect(whole, nullptr, places);
  json other = donor == nullptr ? whole : *donor;
  collect(other, nullptr, donors);
  const Place place = places[below(places.size(), random)];
  const json given = *donors[below(donors.size(), random)].value;
  switch (donor != nullptr ? below(2, random) : below(7, random)) {
    case 0:
      *place.value = given;
      break;
    case 1:
      if (place.value->is_array()) place.value->push_back(given);
      if (place.value->is_object()) (*place.value)["added"] = given;
      break;
    case 2:
      if (place.in != nullptr) remove(place);
      break;
    case 3:
      *place.value = odd_value(random);
      break;
    default:
      if (place.value->is_number())
        change_number(*place.value, random);
      else if (place.value->is_string())
        change_text(*place.value, random);
      else if (place.value->is_array() && place.value->size() > 1)
        std::swap((*place.value)[0], (*place.value)[below(place.value->size(), random)]);
  }
}

std::size_t keep(const json& result, std::uint8_t* out, std::size_t most) {
  const std::string text = result.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > most) return 0;
  std::copy(text.begin(), text.end(), out);
  return text.size();
}

json read(const std::uint8_t* data, std::size_t size) {
  return overtake::parse_json_or_discard({reinterpret_cast<const char*>(data), size});
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  Random random(seed);
  json whole = below(8, random) == 0 ? json(json::value_t::discarded) : read(data, size);
  if (!whole.is_discarded()) {
    for (std::size_t times = 1 + below(3, random); times > 0; --times) mutate(whole, nullptr, random);
    if (const std::size_t length = keep(whole, data, most)) return length;
  }
  return LLVMFuzzerMutate(data, size, most);
}

extern "C" std::size_t LLVMFuzzerCustomCrossOver(const std::uint8_t* first, std::size_t first_size,
                                                 const std::uint8_t* second, std::size_t second_size, std::uint8_t* out,
                                                 std::size_t most, unsigned seed) {
  Random random(seed);
  json whole = read(first, first_size);
  const json donor = read(second, second_size);
  if (whole.is_discarded() || donor.is_discarded()) return 0;
  mutate(whole, &donor, random);
  return keep(whole, out, most);
}
