#include "train/initial_values.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <thread>

#include "base/available_cores.h"
#include "base/hash.h"
#include "base/philox.h"

namespace overtake {
namespace {

constexpr std::size_t kNumbersOfAThread = 1 << 16;  // random ones; fewer are not worth another
constexpr std::int64_t kSomeNumbers = 65'521;       // a prime, so that rows of matrices differ

// Exclusive upper bound of the ids an integer input may hold, by who reads it.
std::int64_t id_bound(const Graph& g, BufferId input) {
  std::int64_t bound = 2;
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    if (g.tasks[t].kind != Kind::forward) continue;
    const auto reads = g.reads(t);
    const Attrs& attrs = g.attrs_of(g.tasks[t]);
    if (g.tasks[t].op == Op::embedding && reads[0] == input) bound = attrs.integer("vocabulary");
    if (g.tasks[t].op == Op::cross_entropy && reads[1] == input)
      bound = attrs.integer("classes", g.buffers[reads[0]].shape.back());
  }
  return bound;
}

// A pair of normal numbers from two words (Box and Muller).
float normal_from(std::uint32_t a, std::uint32_t b) {
  const float u = 1.0f - unit_float(a), v = unit_float(b);
  return std::sqrt(-2.0f * std::log(u)) * std::cos(2.0f * std::numbers::pi_v<float> * v);
}

PhiloxKey key_of(std::uint64_t seed, const std::string& name) {
  Hash64 hash(seed);
  hash.add(name);
  return {static_cast<std::uint32_t>(hash.value()), static_cast<std::uint32_t>(hash.value() >> 32)};
}

bool is_random(const Init& init) { return init.kind == Init::Kind::uniform || init.kind == Init::Kind::normal; }

std::vector<float> initial_values(const Init& init, PhiloxKey key, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count), init.kind == Init::Kind::ones ? 1.0f : 0.0f);
  if (!is_random(init)) return values;
  const auto scale = static_cast<float>(init.scale);
  const auto fill = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const auto words = philox(key, i, 0);
      values[i] = scale * (init.kind == Init::Kind::uniform ? 2.0f * unit_float(words[0]) - 1.0f
                                                            : normal_from(words[0], words[1]));
    }
  };
  const std::size_t threads = std::clamp<std::size_t>(values.size() / kNumbersOfAThread, 1, available_cores());
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < threads; ++i)
    others.emplace_back(fill, values.size() * i / threads, values.size() * (i + 1) / threads);
  fill(0, values.size() / threads);
  others.clear();  // waits for them
  return values;
}

// Of the same spread as initial values, from a list of normal numbers.
std::vector<float> repeated_values(const Init& init, const std::vector<float>& normal, std::int64_t count) {
  if (!is_random(init)) return initial_values(init, {}, count);
  const double deviation = init.kind == Init::Kind::uniform ? init.scale / std::numbers::sqrt3 : init.scale;
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(count));
  for (std::int64_t left = count; left > 0; left -= std::ssize(normal))
    values.insert(values.end(), normal.begin(), normal.begin() + std::min(left, std::ssize(normal)));
  for (float& x : values) x *= static_cast<float>(deviation);
  return values;
}

// `make` gives so many values for what has a name of its own in files.
template <class Make>
void fill_parameters(Executor& executor, const Make& make) {
  const Graph& g = executor.plan(0).graph;
  for (const Parameter& p : g.parameters) {
    const Shape& shape = g.buffers[p.buffer].shape;
    std::vector<float> values;
    for (const StoredPart& part : p.parts) {
      const std::vector<float> rows = make(part.init, g.string(part.name), part.rows * (shape.elements() / shape[0]));
      values.insert(values.end(), rows.begin(), rows.end());
    }
    if (p.parts.empty()) values = make(p.init, g.buffer_name(p.buffer), shape.elements());
    if (p.stored_rows != 0)
      std::fill(values.begin() + p.stored_rows * (shape.elements() / shape[0]), values.end(), 0.0f);
    executor.write_plain(p.buffer, std::as_bytes(std::span(values)));
  }
}

}  // namespace

void fill_random_inputs(Executor& executor, std::uint64_t seed) {
  const Graph& g = executor.plan(0).graph;
  for (BufferId b = 0; b < g.buffers.size(); ++b) {
    const Buffer& x = g.buffers[b];
    if (x.role != Role::input) continue;
    const PhiloxKey key = key_of(seed, g.buffer_name(b));
    const auto bytes = executor.bytes(b);
    const std::int64_t bound = x.dtype == DType::i32 ? id_bound(g, b) : 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(x.shape.elements()); ++i) {
      const auto words = philox(key, i, 0);
      if (x.dtype == DType::f32)
        reinterpret_cast<float*>(bytes.data())[i] = normal_from(words[0], words[1]);
      else if (x.dtype == DType::i32)
        reinterpret_cast<std::int32_t*>(bytes.data())[i] =
            static_cast<std::int32_t>(words[0] % static_cast<std::uint64_t>(bound));
      else
        bytes[i] = std::byte{1};
    }
  }
}

void fill_initial_parameters(Executor& executor, std::uint64_t seed) {
  fill_parameters(executor, [&](const Init& init, const std::string& name, std::int64_t count) {
    return initial_values(init, key_of(seed, name), count);
  });
}

void fill_to_be_timed(Executor& executor) {
  const std::vector<float> some = initial_values({Init::Kind::normal, 1.0}, key_of(1, "some"), kSomeNumbers);
  fill_parameters(executor, [&](const Init& init, const std::string&, std::int64_t count) {
    return repeated_values(init, some, count);
  });
  fill_random_inputs(executor, 1);
}

}  // namespace overtake
