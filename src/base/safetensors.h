#pragma once
// Named tensors in the safetensors format: what PyTorch, JAX and numpy users read and write in one line.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace overtake {

enum class StoredType : std::uint8_t { f32, bf16, f16, f64, i8, i16, i32, i64, u8, boolean };

std::int64_t element_bytes(StoredType type);
std::string_view stored_type_name(StoredType type);  // as the format writes it: "F32", "BF16", "I64", ...

// A tensor as it is in a file: row-major, little-endian. `bytes` is a view: of `owner` when that is set (tensors that
// were read), else of memory the caller keeps alive (tensors to write, without a copy). Copy elements out by memcpy;
// `bytes` need not be aligned.
struct NamedTensor {
  std::string name = {};
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> dims = {};  // empty: one number
  std::span<const std::byte> bytes = {};
  std::shared_ptr<const void> owner = nullptr;
};

// A tensor that owns a copy of `bytes`.
NamedTensor owning_tensor(std::string name, StoredType type, std::vector<std::int64_t> dims,
                          std::span<const std::byte> bytes);

using TensorMetadata = std::map<std::string, std::string>;

struct TensorFile {
  TensorMetadata metadata = {};           // the file's "__metadata__"
  std::vector<NamedTensor> tensors = {};  // sorted by name; all share one owner
  std::uint64_t hash = 0;                 // hash64 of the whole file
};

// What was written: the size and hash64 of the whole file.
struct WrittenTensors {
  std::int64_t bytes = 0;
  std::uint64_t hash = 0;
};

// Streams a file into `out`, not yet committed. The bytes depend on the tensors and the metadata alone, not on the
// order of `tensors`. Names are unique and bytes.size() fits type and dims: our promise.
WrittenTensors write_safetensors(AtomicFile& out, std::span<const NamedTensor> tensors,
                                 const TensorMetadata& metadata = {});

// As above, into `path`, atomically.
WrittenTensors write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                                 const TensorMetadata& metadata = {});

// The whole file in memory, checked: a damaged or foreign one, or one with an element type that is not a StoredType, is
// a user error that names the file and the tensor.
TensorFile read_safetensors(const std::filesystem::path& path);
// The same of a file's content; `where` names it in errors.
TensorFile parse_safetensors(std::shared_ptr<const std::string> content, const std::string& where);

// The metadata alone; nothing else of the file is read or checked.
TensorMetadata read_safetensors_metadata(const std::filesystem::path& path);

// The tensor of that name, or nullptr.
const NamedTensor* find_tensor(std::span<const NamedTensor> tensors, std::string_view name);

}  // namespace overtake
