// Mutations that keep a protobuf message readable. Bytes changed at random mostly break a length, and then the reader
// refuses the file before anything else has seen it; here fields are changed, removed, repeated and exchanged, and all
// lengths are written anew.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace {

constexpr int kMostDepth = 8;
constexpr std::size_t kMostFields = 4096;

struct Field {
  std::uint64_t key = 0;     // number and wire type
  std::uint64_t number = 0;  // of a varint
  std::string bytes = {};    // of other fields without fields inside
  std::vector<Field> fields = {};
  bool is_message = false;

  std::uint64_t type() const { return key & 7; }
};

using Random = std::minstd_rand;

std::optional<std::uint64_t> read_varint(std::string_view& in) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const auto byte = static_cast<std::uint8_t>(in[0]);
    in.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  return {};
}

// Texts can read as messages by chance; that does no harm.
std::optional<std::vector<Field>> parse(std::string_view in, int depth) {
  std::vector<Field> fields;
  while (!in.empty()) {
    const auto key = read_varint(in);
    if (!key || *key < 8 || fields.size() == kMostFields) return {};
    Field field{.key = *key};
    std::size_t length = field.type() == 1 ? 8 : 4;
    if (field.type() == 0) {
      const auto number = read_varint(in);
      if (!number) return {};
      field.number = *number;
      length = 0;
    } else if (field.type() == 2) {
      const auto given = read_varint(in);
      if (!given || *given > in.size()) return {};
      length = static_cast<std::size_t>(*given);
    } else if (field.type() != 1 && field.type() != 5) {
      return {};
    }
    if (length > in.size()) return {};
    field.bytes = in.substr(0, length);
    in.remove_prefix(length);
    if (field.type() == 2 && length > 1 && depth < kMostDepth) {
      if (auto inner = parse(field.bytes, depth + 1)) {
        field.fields = std::move(*inner);
        field.is_message = true;
      }
    }
    fields.push_back(std::move(field));
  }
  return fields;
}

void write_varint(std::uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

std::string written(const std::vector<Field>& fields) {
  std::string out;
  for (const Field& field : fields) {
    write_varint(field.key, out);
    const std::string bytes = field.is_message ? written(field.fields) : field.bytes;
    if (field.type() == 0) write_varint(field.number, out);
    if (field.type() == 2) write_varint(bytes.size(), out);
    out += bytes;
  }
  return out;
}

// A field and the message it is in.
struct Place {
  std::vector<Field>* in;
  std::size_t at;
  Field& field() const { return (*in)[at]; }
};

void collect(std::vector<Field>& fields, std::vector<Place>& places) {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    places.push_back({&fields, i});
    collect(fields[i].fields, places);
  }
}

std::size_t below(std::size_t count, Random& random) { return random() % count; }

void change_number(std::uint64_t& number, Random& random) {
  constexpr std::int64_t kNumbers[] = {0,
                                       1,
                                       2,
                                       3,
                                       4,
                                       5,
                                       6,
                                       7,
                                       8,
                                       -1,
                                       -2,
                                       11,
                                       97,
                                       194,
                                       1 << 20,
                                       std::int64_t{1} << 31,
                                       std::int64_t{1} << 40,
                                       INT64_MAX,
                                       INT64_MIN};
  switch (below(3, random)) {
    case 0:
      number += below(5, random) - 2;
      break;
    case 1:
      number ^= std::uint64_t{1} << below(64, random);
      break;
    default:
      number = static_cast<std::uint64_t>(kNumbers[below(std::size(kNumbers), random)]);
  }
}

void change_bytes(std::string& bytes, Random& random) {
  // Weights and shapes are numbers one after another.
  if (bytes.size() >= 8 && bytes.size() % 8 == 0 && below(2, random) == 0) {
    std::uint64_t number = 0;
    char* at = bytes.data() + 8 * below(bytes.size() / 8, random);
    std::memcpy(&number, at, sizeof number);
    change_number(number, random);
    std::memcpy(at, &number, sizeof number);
    return;
  }
  std::vector<std::uint8_t> room(bytes.begin(), bytes.end());
  room.resize(bytes.size() + 16);
  room.resize(LLVMFuzzerMutate(room.data(), bytes.size(), room.size()));
  bytes.assign(room.begin(), room.end());
}

// A field of the same number as `of`, or any.
const Field& another(const std::vector<Place>& places, const Field& of, Random& random) {
  for (int tries = 0; tries < 16; ++tries) {
    const Field& candidate = places[below(places.size(), random)].field();
    if (candidate.key == of.key && &candidate != &of) return candidate;
  }
  return places[below(places.size(), random)].field();
}

void mutate(std::vector<Field>& fields, const std::vector<Field>* others, Random& random) {
  std::vector<Place> places, donors;
  collect(fields, places);
  if (places.empty()) return;
  std::vector<Field> copy = others != nullptr ? *others : fields;
  collect(copy, donors);
  if (donors.empty()) donors = places;
  const Place place = places[below(places.size(), random)];
  const auto at = [&] { return place.in->begin() + static_cast<std::ptrdiff_t>(place.at); };
  switch (others != nullptr ? 3 + below(2, random) : below(8, random)) {
    case 0:
      place.in->erase(at());
      break;
    case 1: {
      Field twice = place.field();
      place.in->insert(at(), std::move(twice));
      break;
    }
    case 2:
      std::swap(place.field(), (*place.in)[below(place.in->size(), random)]);
      break;
    case 3: {  // what another field of that number holds
      Field given = another(donors, place.field(), random);
      given.key = place.field().type() == given.type() ? place.field().key : given.key;
      place.field() = std::move(given);
      break;
    }
    case 4: {
      Field given = another(donors, place.field(), random);
      place.in->insert(at(), std::move(given));
      break;
    }
    default:
      if (place.field().type() == 0) {
        change_number(place.field().number, random);
      } else if (!place.field().is_message) {
        change_bytes(place.field().bytes, random);
      } else {
        mutate(place.field().fields, nullptr, random);
      }
  }
}

std::size_t keep(const std::string& result, std::uint8_t* out, std::size_t most) {
  if (result.size() > most) return 0;
  std::copy(result.begin(), result.end(), out);
  return result.size();
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  Random random(seed);
  auto fields = parse({reinterpret_cast<const char*>(data), size}, 0);
  if (!fields || below(8, random) == 0) return LLVMFuzzerMutate(data, size, most);
  for (std::size_t i = 0, count = 1 + below(3, random); i < count; ++i) mutate(*fields, nullptr, random);
  const std::size_t kept = keep(written(*fields), data, most);
  return kept > 0 ? kept : LLVMFuzzerMutate(data, size, most);
}

extern "C" std::size_t LLVMFuzzerCustomCrossOver(const std::uint8_t* a, std::size_t a_size, const std::uint8_t* b,
                                                 std::size_t b_size, std::uint8_t* out, std::size_t most,
                                                 unsigned seed) {
  Random random(seed);
  auto fields = parse({reinterpret_cast<const char*>(a), a_size}, 0);
  const auto others = parse({reinterpret_cast<const char*>(b), b_size}, 0);
  if (!fields || !others) return 0;
  for (std::size_t i = 0, count = 1 + below(4, random); i < count; ++i) mutate(*fields, &*others, random);
  return keep(written(*fields), out, most);
}
