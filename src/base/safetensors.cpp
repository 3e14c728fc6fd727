#include "base/safetensors.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"

// The format: an unsigned 64-bit length, that many bytes of JSON, the data. The JSON maps each name to its type, shape
// and place [begin, end) in the data; the places leave no gap and do not overlap.

namespace overtake {
namespace {

using nlohmann::json;
using JsonEvent = json::parse_event_t;

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMostHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::string_view kMetadata = "__metadata__";
constexpr std::string_view kRemedy = "it is damaged or no safetensors file: fetch or write it again";

struct TypeRow {
  StoredType type;
  std::string_view name;
  std::int64_t bytes;
};

constexpr TypeRow kTypes[] = {{StoredType::f32, "F32", 4}, {StoredType::bf16, "BF16", 2},
                              {StoredType::f16, "F16", 2}, {StoredType::f64, "F64", 8},
                              {StoredType::i8, "I8", 1},   {StoredType::i16, "I16", 2},
                              {StoredType::i32, "I32", 4}, {StoredType::i64, "I64", 8},
                              {StoredType::u8, "U8", 1},   {StoredType::boolean, "BOOL", 1}};

const TypeRow& row_of(StoredType type) {
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return row;
  }
  fail_internal(__FILE__, __LINE__, "type is known", "unknown stored type");
}

// The bytes a tensor of these dimensions takes, or -1 when that is negative or beyond 2^63.
std::int64_t tensor_bytes(std::int64_t element, const std::vector<std::int64_t>& dims) {
  std::int64_t bytes = element;
  if (std::any_of(dims.begin(), dims.end(), [](std::int64_t dim) { return dim < 0; })) return -1;
  for (const std::int64_t dim : dims) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return -1;
  }
  return bytes;
}

// ---- writing

// Wide elements first keeps every tensor aligned to its element; names make the order unique.
std::vector<const NamedTensor*> in_file_order(std::span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> sorted;
  for (const NamedTensor& tensor : tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](const NamedTensor* a, const NamedTensor* b) {
    const std::int64_t wide_a = element_bytes(a->type), wide_b = element_bytes(b->type);
    return wide_a != wide_b ? wide_a > wide_b : a->name < b->name;
  });
  return sorted;
}

std::string header_text(const std::vector<const NamedTensor*>& tensors, const TensorMetadata& metadata) {
  json header = json::object();
  if (!metadata.empty()) header[std::string(kMetadata)] = metadata;
  std::uint64_t begin = 0;
  for (const NamedTensor* tensor : tensors) {
    OVERTAKE_CHECK(tensor->name != kMetadata && !header.contains(tensor->name), "tensor name {} used twice",
                   tensor->name);
    OVERTAKE_CHECK(tensor_bytes(element_bytes(tensor->type), tensor->dims) == std::ssize(tensor->bytes),
                   "tensor {} has {} bytes, not what its dimensions say", tensor->name, tensor->bytes.size());
    const std::uint64_t end = begin + tensor->bytes.size();
    header[tensor->name] = {
        {"dtype", stored_type_name(tensor->type)}, {"shape", tensor->dims}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data begins at a multiple of 8
  return text;
}

// ---- reading

// What torch.save writes is a zip file, or of old versions a pickle; it can run any code when it is read.
void check_is_not_of_pytorch(std::string_view content, const std::string& file) {
  using namespace std::literals;
  const bool is_zip = content.starts_with("PK\x03\x04"sv), is_pickle = content.starts_with("\x80"sv);
  const bool is_header_behind = content.size() > kLengthBytes && content[kLengthBytes] == '{';
  if (!is_zip && (!is_pickle || is_header_behind)) return;
  const std::string target = std::filesystem::path(file).stem().string() + ".safetensors";
  fail_user(
      "{}: it is a {} of PyTorch, and what is read here is safetensors; write it again from Python:\n"
      "  import torch, safetensors.torch\n"
      "  weights = torch.load(\"{}\", map_location=\"cpu\", weights_only=True)\n"
      "  safetensors.torch.save_file({{name: w.clone().contiguous() for name, w in weights.items()}}, \"{}\")",
      file, is_zip ? "zip file" : "pickle", std::filesystem::path(file).filename().string(), target);
}

// The header as JSON. Names used twice and anything deeper than the format's own nesting are refused while parsing, so
// a hostile header costs little.
json parse_header(std::string_view text, const std::string& file) {
  std::set<std::string> names;
  const auto check = [&](int depth, JsonEvent event, const json& value) {
    if (depth > 3) fail_user("{}: the header is nested too deeply; {}", file, kRemedy);
    if (event == JsonEvent::key && depth == 1 && !names.insert(value.get<std::string>()).second) {
      fail_user("{}: tensor {} is there twice; {}", file, value.get<std::string>(), kRemedy);
    }
    return true;
  };
  json header;
  try {
    header = parse_json(text, check);
  } catch (const json::exception& error) {
    fail_user("{}: the header is not JSON: {}; {}", file, error.what(), kRemedy);
  }
  if (!header.is_object()) fail_user("{}: the header is not a JSON object; {}", file, kRemedy);
  return header;
}

TensorMetadata parse_metadata(const json& value, const std::string& file) {
  const bool good =
      value.is_object() && std::all_of(value.begin(), value.end(), [](const json& entry) { return entry.is_string(); });
  if (!good) fail_user("{}: {} is not a map of texts; {}", file, kMetadata, kRemedy);
  return value.get<TensorMetadata>();
}

// Non-negative whole numbers below 2^63, as json has them after parsing.
bool is_natural_array(const json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const json& entry) {
           return entry.is_number_unsigned() && std::in_range<std::int64_t>(entry.get<std::uint64_t>());
         });
}

NamedTensor parse_tensor(const std::string& name, const json& entry, std::span<const std::byte> data,
                         const std::string& file) {
  const bool good = entry.is_object() && entry.size() == 3 && entry.contains("dtype") && entry["dtype"].is_string() &&
                    entry.contains("shape") && is_natural_array(entry["shape"]) && entry.contains("data_offsets") &&
                    is_natural_array(entry["data_offsets"]) && entry["data_offsets"].size() == 2;
  if (!good) fail_user("{}: tensor {}: its entry is not dtype, shape and data_offsets; {}", file, name, kRemedy);

  const auto type_name = entry["dtype"].get<std::string>();
  const auto row = std::find_if(std::begin(kTypes), std::end(kTypes),
                                [&](const TypeRow& candidate) { return candidate.name == type_name; });
  if (row == std::end(kTypes)) {
    fail_user("{}: tensor {} has type {}, which Overtake does not read; convert it to F32", file, name, type_name);
  }

  NamedTensor tensor{
      .name = name, .type = row->type, .dims = entry["shape"].get<std::vector<std::int64_t>>(), .bytes = {}};
  const auto begin = entry["data_offsets"][0].get<std::size_t>();
  const auto end = entry["data_offsets"][1].get<std::size_t>();
  if (begin > end || end > data.size()) {
    fail_user("{}: tensor {} lies at bytes {} to {} of {}; {}", file, name, begin, end, data.size(), kRemedy);
  }
  tensor.bytes = data.subspan(begin, end - begin);
  if (tensor_bytes(row->bytes, tensor.dims) != std::ssize(tensor.bytes)) {
    fail_user("{}: tensor {} of type {} and shape [{}] has {} bytes; {}", file, name, type_name,
              fmt::join(tensor.dims, ", "), tensor.bytes.size(), kRemedy);
  }
  return tensor;
}

// The tensors cover `data` one after another, without gap or overlap.
void check_places(const std::vector<NamedTensor>& tensors, std::span<const std::byte> data, const std::string& file) {
  std::vector<const NamedTensor*> sorted;
  for (const NamedTensor& tensor : tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return std::pair(a->bytes.data(), a->bytes.size()) < std::pair(b->bytes.data(), b->bytes.size());
  });
  const std::byte* next = data.data();
  std::string_view before = "the header";
  for (const NamedTensor* tensor : sorted) {
    if (tensor->bytes.data() < next) fail_user("{}: tensor {} overlaps {}; {}", file, tensor->name, before, kRemedy);
    if (tensor->bytes.data() > next) {
      fail_user("{}: there is a gap between {} and tensor {}; {}", file, before, tensor->name, kRemedy);
    }
    next += tensor->bytes.size();
    before = tensor->name;
  }
  if (next != data.data() + data.size()) {
    fail_user("{}: {} bytes behind the last tensor; {}", file, data.data() + data.size() - next, kRemedy);
  }
}

}  // namespace

std::int64_t element_bytes(StoredType type) { return row_of(type).bytes; }

std::string_view stored_type_name(StoredType type) { return row_of(type).name; }

NamedTensor owning_tensor(std::string name, StoredType type, std::vector<std::int64_t> dims,
                          std::span<const std::byte> bytes) {
  const auto copy = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
  return {.name = std::move(name), .type = type, .dims = std::move(dims), .bytes = *copy, .owner = copy};
}

WrittenTensors write_safetensors(AtomicFile& out, std::span<const NamedTensor> tensors,
                                 const TensorMetadata& metadata) {
  Hash64 hash;
  WrittenTensors written;
  const auto put = [&](std::span<const std::byte> bytes) {
    hash.add(bytes);
    out.write(bytes);
    written.bytes += std::ssize(bytes);
  };
  const std::vector<const NamedTensor*> sorted = in_file_order(tensors);
  const std::string header = header_text(sorted, metadata);
  const std::uint64_t length = header.size();
  put(std::as_bytes(std::span(&length, 1)));
  put(std::as_bytes(std::span(header)));
  for (const NamedTensor* tensor : sorted) put(tensor->bytes);
  written.hash = hash.value();
  return written;
}

WrittenTensors write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                                 const TensorMetadata& metadata) {
  AtomicFile out(path);
  const WrittenTensors written = write_safetensors(out, tensors, metadata);
  out.commit();
  return written;
}

TensorFile read_safetensors(const std::filesystem::path& path) {
  return parse_safetensors(std::make_shared<const std::string>(read_file(path)), path.string());
}

TensorFile parse_safetensors(std::shared_ptr<const std::string> content, const std::string& file) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(*content));
  check_is_not_of_pytorch(*content, file);
  if (bytes.size() < kLengthBytes) fail_user("{}: it has {} bytes only; {}", file, bytes.size(), kRemedy);
  std::uint64_t length;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMostHeaderBytes || length > bytes.size() - kLengthBytes) {
    fail_user("{}: its header would take {} of {} bytes; {}", file, length, bytes.size(), kRemedy);
  }
  const json header = parse_header(std::string_view(*content).substr(kLengthBytes, length), file);

  TensorFile result;
  result.hash = hash64(bytes);
  const std::span<const std::byte> data = bytes.subspan(kLengthBytes + length);
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadata) {
      result.metadata = parse_metadata(entry, file);
    } else {
      result.tensors.push_back(parse_tensor(name, entry, data, file));
      result.tensors.back().owner = content;
    }
  }
  check_places(result.tensors, data, file);
  return result;
}

TensorMetadata read_safetensors_metadata(const std::filesystem::path& path) {
  const std::string file = path.string();
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_user("{}: cannot read: {}; check the path", file, std::strerror(errno));
  std::uint64_t length = 0;
  std::string header;
  std::error_code unknown;
  in.read(reinterpret_cast<char*>(&length), kLengthBytes);
  if (!in || length > kMostHeaderBytes || length > std::filesystem::file_size(path, unknown) || unknown) {
    fail_user("{}: it has no header; {}", file, kRemedy);
  }
  header.resize(length);
  if (!in.read(header.data(), static_cast<std::streamsize>(length)))
    fail_user("{}: it is cut short; {}", file, kRemedy);
  const json parsed = parse_header(header, file);
  const auto found = parsed.find(kMetadata);
  return found == parsed.end() ? TensorMetadata{} : parse_metadata(*found, file);
}

const NamedTensor* find_tensor(std::span<const NamedTensor> tensors, std::string_view name) {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const NamedTensor& tensor) { return tensor.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

}  // namespace overtake
