#include "train/parameter_store.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "train/data_sources.h"
#include "train/initial_values.h"
#include "train/tags.h"
#include "train/weights.h"

namespace overtake {

ParameterStore::ParameterStore(const Graph& step, const Detail& whole, const Detail& mine, Executor& executor,
                               RankGroups* groups)
    : step_(step), executor_(&executor), groups_(groups) {
  std::map<std::string, Home> homes;
  const Graph& all = whole.plan.graph;
  for (const Parameter& p : all.parameters) {
    std::vector<int>& ranks = homes[all.buffer_name(p.buffer)].ranks;
    ranks.push_back(groups != nullptr ? all.buffers[p.buffer].device : 0);
  }
  const Graph& own = mine.plan.graph;
  for (const Parameter& p : own.parameters) homes.at(own.buffer_name(p.buffer)).here.push_back(p.buffer);
  for (const Parameter& p : step_.parameters) {
    Home home = homes.at(step_.buffer_name(p.buffer));
    std::ranges::sort(home.ranks);
    home.ranks.erase(std::unique(home.ranks.begin(), home.ranks.end()), home.ranks.end());
    homes_.push_back(std::move(home));
  }
}

void ParameterStore::initialise(std::uint64_t seed, const std::vector<NamedTensor>& tensors) {
  fill_initial_parameters(*executor_, seed);
  for (std::size_t i = 0; i < homes_.size(); ++i) write(i, values_from(i, tensors));
}

std::size_t ParameterStore::bytes_of_values(std::size_t parameter) const {
  const Buffer& b = step_.buffers[step_.parameters[parameter].buffer];
  return static_cast<std::size_t>(b.shape.elements() * bytes_of(b.dtype));
}

std::vector<std::byte> ParameterStore::own_values(std::size_t parameter) const {
  std::vector<std::byte> values(bytes_of_values(parameter));
  executor_->read_plain(homes_[parameter].here.at(0), values);
  return values;
}

void ParameterStore::write(std::size_t parameter, std::span<const std::byte> values) {
  for (const BufferId b : homes_[parameter].here)
    if (!values.empty()) executor_->write_plain(b, values);
}

std::vector<std::byte> ParameterStore::collect(std::size_t parameter) const {
  const int home = homes_[parameter].ranks.at(0);
  std::vector<std::byte> values;
  if (home == rank()) values = own_values(parameter);
  if (home == 0) return rank() == 0 ? values : std::vector<std::byte>{};
  Group& world = *groups_->world;
  const TransferOptions options{.tag = kParameterTag + parameter};
  if (rank() == 0) {
    values.resize(bytes_of_values(parameter));
    if (!values.empty()) world.wait(world.recv(home, values.data(), values.size(), DType::u8, options));
  } else if (home == rank()) {
    if (!values.empty()) world.wait(world.send(0, values.data(), values.size(), DType::u8, options));
    values.clear();
  }
  return values;
}

std::vector<std::byte> ParameterStore::values_from(std::size_t parameter,
                                                   const std::vector<NamedTensor>& tensors) const {
  const Parameter& p = step_.parameters[parameter];
  const Buffer& b = step_.buffers[p.buffer];
  std::vector<std::byte> values;
  for (const StoredTensor& part : stored_tensors(step_, p)) {
    const NamedTensor* t = find_tensor(tensors, part.name);
    if (t == nullptr) continue;
    // Checkpoints of older versions have dimensions of one that the model's file has not.
    OVERTAKE_CHECK(same_but_ones(t->dims, stored_dims(step_, p, part)) && t->type == stored_type(b.dtype),
                   "tensor {} is stored as {} [{}]", t->name, stored_type_name(t->type), fmt::join(t->dims, ", "));
    if (part.rows == 0) {
      values = from_stored(step_, p, t->bytes);
      continue;
    }
    // The rows that are not there stay as they are.
    if (values.empty())
      values =
          homes_[parameter].here.empty() ? std::vector<std::byte>(bytes_of_values(parameter)) : own_values(parameter);
    const auto row = static_cast<std::ptrdiff_t>(values.size()) / b.shape[0];
    std::ranges::copy(t->bytes, values.begin() + part.first_row * row);
  }
  return values;
}

std::vector<NamedTensor> ParameterStore::tensors_of(std::size_t parameter) const {
  const Parameter& p = step_.parameters[parameter];
  const Buffer& b = step_.buffers[p.buffer];
  std::vector<std::byte> values = collect(parameter);
  if (rank() == 0) values = to_stored(step_, p, std::move(values));
  const auto memory = std::make_shared<const std::vector<std::byte>>(std::move(values));
  std::vector<NamedTensor> tensors;
  for (const StoredTensor& part : stored_tensors(step_, p)) {
    std::span<const std::byte> bytes = *memory;
    if (part.rows != 0 && rank() == 0) {
      const std::size_t row = bytes.size() / static_cast<std::size_t>(b.shape[0]);
      bytes = bytes.subspan(static_cast<std::size_t>(part.first_row) * row, static_cast<std::size_t>(part.rows) * row);
    }
    tensors.push_back({part.name, stored_type(b.dtype), stored_dims(step_, p, part), bytes, memory});
  }
  return tensors;
}

std::vector<NamedTensor> ParameterStore::tensors() const {
  executor_->settle();
  std::vector<NamedTensor> all;
  for (std::size_t i = 0; i < homes_.size(); ++i) {
    std::vector<NamedTensor> tensors = tensors_of(i);
    if (rank() == 0) std::ranges::move(tensors, std::back_inserter(all));
  }
  return all;
}

std::optional<NamedTensor> ParameterStore::find(const std::string& name) const {
  for (std::size_t i = 0; i < homes_.size(); ++i)
    for (const StoredTensor& part : stored_tensors(step_, step_.parameters[i])) {
      if (part.name != name) continue;
      executor_->settle();
      const std::vector<NamedTensor> tensors = tensors_of(i);
      return *find_tensor(tensors, name);
    }
  return {};
}

void ParameterStore::restore(const std::vector<NamedTensor>& tensors, const std::string& where) {
  std::vector<std::string> missing, misshapen, extra;
  std::set<std::string> known;
  for (const Parameter& p : step_.parameters)
    for (const StoredTensor& part : stored_tensors(step_, p)) {
      known.insert(part.name);
      const NamedTensor* tensor = find_tensor(tensors, part.name);
      const std::vector<std::int64_t> dims = stored_dims(step_, p, part);
      if (tensor == nullptr)
        missing.push_back(part.name);
      else if (!same_but_ones(tensor->dims, dims) || tensor->type != stored_type(step_.buffers[p.buffer].dtype))
        misshapen.push_back(
            fmt::format("{} ([{}], model has [{}])", part.name, fmt::join(tensor->dims, ", "), fmt::join(dims, ", ")));
    }
  for (const NamedTensor& t : tensors)
    if (!known.contains(t.name)) extra.push_back(t.name);
  if (rank() == 0 && (!missing.empty() || !misshapen.empty() || !extra.empty()))
    fail_user(
        "{}: it does not fit model {} and its optimizer: missing [{}], of another shape [{}], too much [{}]; use the "
        "model and settings it was made with",
        where, step_.model, fmt::join(missing, ", "), fmt::join(misshapen, ", "), fmt::join(extra, ", "));
  for (std::size_t i = 0; i < homes_.size(); ++i) {
    std::vector<std::byte> values = rank() == 0 ? values_from(i, tensors) : std::vector<std::byte>{};
    if (groups_ != nullptr) {
      values.resize(bytes_of_values(i));
      Group& world = *groups_->world;
      if (!values.empty())
        world.wait(world.broadcast(0, values.data(), values.size(), DType::u8, {.tag = kParameterTag + i}));
    }
    write(i, values);
  }
}

// Every rank that is to have a parameter, and does not have it yet, gets it from the first that does.
void ParameterStore::take(const ParameterStore& other) {
  std::map<std::string, std::size_t> theirs;
  for (std::size_t i = 0; i < other.homes_.size(); ++i)
    theirs[other.step_.buffer_name(other.step_.parameters[i].buffer)] = i;
  for (std::size_t i = 0; i < homes_.size(); ++i) {
    const Parameter& p = step_.parameters[i];
    const std::string& name = step_.buffer_name(p.buffer);
    const auto known = theirs.find(name);
    OVERTAKE_CHECK(known != theirs.end(), "parameter {} is not in the program before", name);
    const Parameter& q = other.step_.parameters[known->second];
    const Home& from = other.homes_[known->second];
    OVERTAKE_CHECK(stored_dims(step_, p) == stored_dims(other.step_, q), "parameter {} has another shape than before",
                   name);
    const bool has_it = std::ranges::binary_search(from.ranks, rank());
    const bool wants_it = std::ranges::binary_search(homes_[i].ranks, rank());
    const int source = from.ranks.at(0);
    const std::size_t bytes = other.bytes_of_values(known->second);
    std::vector<std::byte> values;
    if (has_it && (wants_it || source == rank())) values = other.own_values(known->second);
    const TransferOptions options{.tag = kParameterTag + i};
    for (const int r : homes_[i].ranks) {
      if (bytes == 0 || std::ranges::binary_search(from.ranks, r)) continue;
      Group& world = *groups_->world;
      if (rank() == source) world.wait(world.send(r, values.data(), bytes, DType::u8, options));
      if (rank() != r) continue;
      values.resize(bytes);
      world.wait(world.recv(source, values.data(), bytes, DType::u8, options));
    }
    if (wants_it) write(i, from_stored(step_, p, to_stored(other.step_, q, std::move(values))));
  }
}

std::uint64_t ParameterStore::weights_hash() const {
  executor_->settle();
  Hash64 hash;
  for (std::size_t i = 0; i < homes_.size(); ++i)
    if (step_.buffers[step_.parameters[i].buffer].role == Role::weight) hash.add(collect(i));
  return hash.value();
}

bool have_same_persistent_layout(const Plan& a, const Plan& b) {
  const auto rows = [](const Plan& plan) {
    std::vector<std::pair<std::uint64_t, std::string>> all;
    for (BufferId i = 0; i < plan.graph.buffers.size(); ++i) {
      const Buffer& x = plan.graph.buffers[i];
      if (is_persistent(x.role))
        all.emplace_back(plan.offsets[i],
                         fmt::format("{} {} {} {} {} {}", plan.graph.buffer_name(i), to_string(x.role),
                                     to_string(x.dtype), to_string(x.shape), to_string(x.layout), x.device));
    }
    std::ranges::sort(all);
    return all;
  };
  return a.persistent_bytes == b.persistent_bytes && rows(a) == rows(b);
}

}  // namespace overtake
