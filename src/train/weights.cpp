#include "train/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <unordered_map>

#include "base/bf16.h"
#include "base/error.h"
#include "base/half.h"
#include "base/hash.h"

namespace overtake {
namespace {

constexpr std::string_view kStateSuffixes[] = {".momentum", ".exp_avg", ".exp_avg_sq"};

// What PyTorch modules keep that is neither weight nor statistic.
bool is_bookkeeping(std::string_view name) {
  constexpr std::string_view kSuffixes[] = {"num_batches_tracked", "position_ids", "token_type_ids", ".attn.bias",
                                            ".attn.masked_bias"};
  return std::ranges::any_of(kSuffixes, [&](std::string_view suffix) { return name.ends_with(suffix); });
}

std::size_t rows_in_file(const Buffer& b, const Parameter& p) {
  return static_cast<std::size_t>(p.stored_rows != 0 ? p.stored_rows : b.shape[0]);
}

// [rows, columns] -> [columns, rows]
std::vector<std::byte> transposed(std::span<const std::byte> from, std::int64_t rows, std::int64_t columns,
                                  std::size_t element) {
  std::vector<std::byte> to(from.size());
  const auto r = static_cast<std::size_t>(rows), c = static_cast<std::size_t>(columns);
  for (std::size_t i = 0; i < r; ++i)
    for (std::size_t j = 0; j < c; ++j)
      std::memcpy(to.data() + (j * r + i) * element, from.data() + (i * c + j) * element, element);
  return to;
}

template <class Stored, class Convert>
std::vector<float> converted(std::span<const std::byte> bytes, Convert convert) {
  std::vector<float> values(bytes.size() / sizeof(Stored));
  for (std::size_t i = 0; i < values.size(); ++i) {
    Stored x;
    std::memcpy(&x, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    values[i] = convert(x);
  }
  return values;
}

bool is_real(StoredType type) {
  return type == StoredType::f32 || type == StoredType::bf16 || type == StoredType::f16 || type == StoredType::f64;
}

NamedTensor as_float32(NamedTensor t, const std::string& name) {
  t.name = name;
  if (t.type == StoredType::f32) return t;
  const std::vector<float> values = as_floats(t.bytes, t.type);
  return owning_tensor(name, StoredType::f32, t.dims, std::as_bytes(std::span(values)));
}

// Names by which a graph's weights can be found in a file.
using Index = std::unordered_map<std::string, const NamedTensor*>;

std::size_t matches(const std::vector<std::string>& names, const Index& file, const NameRule& rule) {
  return static_cast<std::size_t>(
      std::ranges::count_if(names, [&](const std::string& name) { return file.contains(rule.apply(name)); }));
}

std::string first_component(const std::string& name) {
  const std::size_t dot = name.find('.');
  return dot == std::string::npos ? "" : name.substr(0, dot + 1);
}

// The rule under which most names are found; the plain one if none finds more, and at least half of all.
NameRule best_rule(const std::vector<std::string>& names, const Index& file) {
  std::set<std::string> ours, theirs;
  for (const std::string& name : names) ours.insert(first_component(name));
  for (const auto& [name, tensor] : file) theirs.insert(first_component(name));
  std::vector<NameRule> rules;
  for (const std::string& prefix : ours) rules.push_back({prefix, ""});
  for (const std::string& prefix : theirs) rules.push_back({"", prefix});
  NameRule best;
  std::size_t most = matches(names, file, best);
  const std::size_t enough = (names.size() + 1) / 2;
  for (const NameRule& rule : rules) {
    if (most == names.size()) break;
    const std::size_t found = matches(names, file, rule);
    if (found > most && found >= enough) best = rule, most = found;
  }
  return best;
}

std::string list_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 20;
  const std::vector<std::string> first(names.begin(),
                                       names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kMost)));
  return fmt::format("{}{}", fmt::join(first, ", "),
                     names.size() > kMost ? fmt::format(" and {} more", names.size() - kMost) : "");
}

}  // namespace

std::string NameRule::apply(const std::string& name) const {
  return add + (!remove.empty() && name.starts_with(remove) ? name.substr(remove.size()) : name);
}

StoredType stored_type(DType type) {
  switch (type) {
    case DType::bf16:
      return StoredType::bf16;
    case DType::i32:
      return StoredType::i32;
    case DType::u8:
      return StoredType::u8;
    case DType::f32:
      break;
  }
  return StoredType::f32;
}

std::vector<float> as_floats(std::span<const std::byte> bytes, StoredType type) {
  const auto cast = [](auto x) { return static_cast<float>(x); };
  switch (type) {
    case StoredType::f32:
      return converted<float>(bytes, cast);
    case StoredType::bf16:
      return converted<bf16>(bytes, [](bf16 x) { return to_float(x); });
    case StoredType::f16:
      return converted<std::uint16_t>(bytes, half_to_float);
    case StoredType::f64:
      return converted<double>(bytes, cast);
    case StoredType::i32:
      return converted<std::int32_t>(bytes, cast);
    case StoredType::u8:
      return converted<std::uint8_t>(bytes, cast);
    default:
      OVERTAKE_CHECK(false, "no buffer has elements of type {}", stored_type_name(type));
      return {};
  }
}

std::vector<std::int64_t> stored_dims(const Graph& g, const Parameter& p) {
  if (p.stored_shape) return {p.stored_shape->span().begin(), p.stored_shape->span().end()};
  const Shape& shape = g.buffers[p.buffer].shape;
  std::vector<std::int64_t> dims(shape.span().begin(), shape.span().end());
  if (p.stored_rows != 0) dims[0] = p.stored_rows;
  if (p.stored_transposed) std::swap(dims[0], dims[1]);
  if (dims.size() != 5) return dims;
  dims[1] *= dims[0];  // [G, O / G, ...] -> [O, ...]
  dims.erase(dims.begin());
  return dims;
}

std::vector<StoredTensor> stored_tensors(const Graph& g, const Parameter& p) {
  if (p.parts.empty()) return {{g.buffer_name(p.buffer), 0, 0}};
  std::vector<StoredTensor> all;
  std::int64_t row = 0;
  for (const StoredPart& part : p.parts) {
    all.push_back({g.string(part.name), row, part.rows});
    row += part.rows;
  }
  return all;
}

std::vector<std::int64_t> stored_dims(const Graph& g, const Parameter& p, const StoredTensor& tensor) {
  std::vector<std::int64_t> dims = stored_dims(g, p);
  if (tensor.rows != 0) dims[0] = tensor.rows;
  return dims;
}

std::vector<std::byte> to_stored(const Graph& g, const Parameter& p, std::vector<std::byte> ours) {
  const Buffer& b = g.buffers[p.buffer];
  if (p.stored_rows != 0) ours.resize(ours.size() / static_cast<std::size_t>(b.shape[0]) * rows_in_file(b, p));
  if (!p.stored_transposed) return ours;
  return transposed(ours, static_cast<std::int64_t>(rows_in_file(b, p)), b.shape[1],
                    static_cast<std::size_t>(bytes_of(b.dtype)));
}

std::vector<std::byte> from_stored(const Graph& g, const Parameter& p, std::span<const std::byte> stored) {
  const Buffer& b = g.buffers[p.buffer];
  std::vector<std::byte> ours(stored.begin(), stored.end());
  if (p.stored_transposed)
    ours = transposed(stored, b.shape[1], static_cast<std::int64_t>(rows_in_file(b, p)),
                      static_cast<std::size_t>(bytes_of(b.dtype)));
  ours.resize(static_cast<std::size_t>(b.shape.elements() * bytes_of(b.dtype)));  // zeros beyond the file's rows
  return ours;
}

FoundWeights find_weights(const Graph& g, const TensorFile& file, const std::vector<std::string>& skip,
                          const std::string& where, ExtraWeights allowed) {
  Index index;
  for (const NamedTensor& t : file.tensors) index[t.name] = &t;
  for (const std::string& prefix : skip) {
    const auto begins = [&](const std::string& name) { return !prefix.empty() && name.starts_with(prefix); };
    const bool is_used =
        std::ranges::any_of(file.tensors, [&](const NamedTensor& t) { return begins(t.name); }) ||
        std::ranges::any_of(g.parameters, [&](const Parameter& p) { return begins(g.buffer_name(p.buffer)); });
    if (!is_used) fail_user("`init_skip {}`: no name in the file or in model {} begins so", prefix, g.model);
  }
  const auto is_skipped = [&](const std::string& name) {
    return std::ranges::any_of(skip, [&](const std::string& prefix) { return name.starts_with(prefix); });
  };
  std::vector<const Parameter*> wanted;
  std::vector<std::string> names;
  for (const Parameter& p : g.parameters) {
    if (is_skipped(g.buffer_name(p.buffer))) continue;
    wanted.push_back(&p);
    names.push_back(g.buffer_name(p.buffer));
  }

  FoundWeights found{.names = best_rule(names, index)};
  std::vector<std::string> missing, misshapen;
  std::vector<std::string>& extra = found.extra;
  std::set<std::string_view> used;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto it = index.find(found.names.apply(names[i]));
    if (it == index.end()) {
      missing.push_back(names[i]);
      continue;
    }
    const NamedTensor& t = *it->second;
    const std::vector<std::int64_t> dims = stored_dims(g, *wanted[i]);
    used.insert(t.name);
    if (t.dims != dims || !is_real(t.type))
      misshapen.push_back(fmt::format("{} (the file has {} [{}], the model [{}])", names[i], stored_type_name(t.type),
                                      fmt::join(t.dims, ", "), fmt::join(dims, ", ")));
    else
      found.tensors.push_back(as_float32(t, names[i]));
  }
  // Fresh biases and statistics are all the same number; those are equal without being copies.
  const auto is_copy = [&](const NamedTensor& t) {
    const auto size = static_cast<std::size_t>(element_bytes(t.type));
    bool is_one_number = true;
    for (std::size_t i = size; i < t.bytes.size() && is_one_number; i += size)
      is_one_number = std::memcmp(t.bytes.data(), t.bytes.data() + i, size) == 0;
    return !is_one_number && std::ranges::any_of(used, [&](std::string_view name) {
      const NamedTensor& other = *index.at(std::string(name));
      return other.dims == t.dims && other.type == t.type && std::ranges::equal(other.bytes, t.bytes);
    });
  };
  for (const NamedTensor& t : file.tensors)
    if (!used.contains(t.name) && !is_bookkeeping(t.name) && !is_skipped(t.name) && !is_copy(t))
      extra.push_back(t.name);
  const bool is_extra_wrong = !extra.empty() && allowed == ExtraWeights::refused;
  if (!missing.empty() || !misshapen.empty() || is_extra_wrong)
    fail_user(
        "{}: its weights do not fit model {}: missing [{}], of another shape or type [{}], too much [{}]; give the "
        "settings it was made with, or pass over names by their beginning with `init_skip`",
        where, g.model, list_of(missing), list_of(misshapen), list_of(extra));
  return found;
}

std::uint64_t weights_hash(const CheckpointState& state) {
  const Graph& network = *state.network;
  Hash64 hash;
  for (const Parameter& p : network.parameters) {
    if (network.buffers[p.buffer].role != Role::weight) continue;
    for (const StoredTensor& part : stored_tensors(network, p)) {
      const NamedTensor* tensor = find_tensor(state.tensors, part.name);
      if (tensor == nullptr) continue;
      if (part.rows != 0)
        hash.add(tensor->bytes);
      else
        hash.add(from_stored(network, p, tensor->bytes));
    }
  }
  return hash.value();
}

std::vector<NamedTensor> exported_weights(const CheckpointState& state) {
  std::set<std::string> names;
  for (const NamedTensor& t : state.tensors) names.insert(t.name);
  const auto is_optimizer_state = [&](const std::string& name) {
    return std::ranges::any_of(kStateSuffixes, [&](std::string_view suffix) {
      return name.ends_with(suffix) && names.contains(name.substr(0, name.size() - suffix.size()));
    });
  };
  NameRule rule;
  if (const auto it = state.settings.find("weight_names"); it != state.settings.end())
    rule = {it->at("remove").get<std::string>(), it->at("add").get<std::string>()};
  std::vector<NamedTensor> all;
  for (NamedTensor t : state.tensors) {
    if (is_optimizer_state(t.name)) continue;
    constexpr std::string_view kMean = "running_mean";
    t.name = rule.apply(t.name);
    if (t.name.ends_with(kMean)) {
      const auto steps = static_cast<std::int64_t>(state.step);
      all.push_back(owning_tensor(t.name.substr(0, t.name.size() - kMean.size()) + "num_batches_tracked",
                                  StoredType::i64, {}, std::as_bytes(std::span(&steps, 1))));
    }
    all.push_back(std::move(t));
  }
  return all;
}

}  // namespace overtake
