#include "machine/kernel_times/calibration.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/nearest_word.h"
#include "base/toml.h"
#include "base/units.h"
#include "machine/kernel_times/kernel_table.h"
#include "machine/kernel_times/kernel_times.h"

namespace overtake {
namespace {

constexpr std::array<std::string_view, 5> kKinds = {"product", "convolution", "attention", "elementwise", "launch"};
constexpr std::int64_t kMostExtent = 1 << 24;  // of a dimension

// One [[kernel]] of a file.
class KernelSection {
 public:
  KernelSection(const toml::table& table, const std::string& file) : table_(table), file_(file) {}

  MeasuredKernel read() {
    MeasuredKernel out;
    const std::string kind = text("kind");
    const auto at = std::ranges::find(kKinds, kind);
    if (at == kKinds.end())
      fail("kind: no such kernel: \"{}\"; there are {}{}", kind, fmt::join(kKinds, ", "),
           did_you_mean(kind, kKinds, std::identity()));
    out.kind = static_cast<KernelClass>(at - kKinds.begin());
    out.ns = quantity("time", Measure::nanoseconds);
    switch (out.kind) {
      case KernelClass::product:
        product(out);
        break;
      case KernelClass::convolution:
        convolution(out);
        break;
      case KernelClass::attention:
        attention(out);
        break;
      case KernelClass::elementwise:
        elementwise(out);
        break;
      case KernelClass::launch:
        break;
    }
    for (const auto& [key, value] : table_)
      if (std::ranges::find(known_, key.str()) == known_.end())
        fail("unknown key: \"{}\"; a {} has {}{}", key.str(), kind, fmt::join(known_, ", "),
             did_you_mean(std::string(key.str()), known_, std::identity()));
    return out;
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> form, Args&&... args) const {
    fail_user("{}:{}: {}", file_, table_.source().begin.line, fmt::format(form, std::forward<Args>(args)...));
  }
  const toml::node* find(const char* key) {
    known_.emplace_back(key);
    return table_.get(key);
  }
  const toml::node& required(const char* key) {
    const toml::node* node = find(key);
    if (node == nullptr) fail("{}: missing in [[kernel]]; add \"{} = ...\"", key, key);
    return *node;
  }
  std::string text(const char* key) {
    const auto* value = required(key).as_string();
    if (value == nullptr || value->get().empty()) fail("{}: no text; write one in quotes", key);
    return value->get();
  }
  std::int64_t quantity(const char* key, Measure measure) {
    const toml::node& node = required(key);
    std::optional<std::int64_t> number;
    if (const auto* value = node.as_string()) number = parse_quantity(value->get(), measure);
    if (const auto* value = node.as_integer()) number = value->get();
    if (!number || *number < 1)
      fail("{}: not more than 0 with a known unit; write a number and, in the same quotes, one of: {}", key,
           unit_list(measure));
    return *number;
  }
  std::int64_t whole(const char* key, const toml::node& node) const {
    const auto* value = node.as_integer();
    if (value == nullptr || value->get() < 1 || value->get() > kMostExtent)
      fail("{}: not a size; write a whole number from 1 to {}", key, kMostExtent);
    return value->get();
  }
  std::int64_t size(const char* key) { return whole(key, required(key)); }
  std::int64_t size(const char* key, std::int64_t fallback) {
    const toml::node* node = find(key);
    return node == nullptr ? fallback : whole(key, *node);
  }
  // What follows the kernel's pass: forward, input_grad or weight_grad.
  Kind pass() {
    const toml::node* node = find("pass");
    if (node == nullptr) return Kind::forward;
    const std::string name = node->value_or(std::string());
    if (name == "input_grad") return Kind::input_grad;
    if (name == "weight_grad") return Kind::weight_grad;
    if (name != "forward") fail("pass: no such pass: \"{}\"; there are forward, input_grad, weight_grad", name);
    return Kind::forward;
  }
  DType precision(MeasuredKernel& kernel) {
    const std::string name = text("precision");
    if (name != "f32" && name != "tf32" && name != "bf16")
      fail("precision: no such precision: \"{}\"; there are f32, tf32, bf16", name);
    kernel.tf32 = name == "tf32";
    return name == "bf16" ? DType::bf16 : DType::f32;
  }
  static BufferId buffer(Graph& g, const char* name, const Shape& shape, DType type, bool is_image = false) {
    const BufferId b = g.add_buffer(name, shape, type, Role::activation);
    if (is_image) g.buffers[b].layout = channels_last_layout();
    return b;
  }

  void product(MeasuredKernel& out) {
    const DType type = precision(out);
    const std::int64_t m = size("m"), n = size("n"), k = size("k"), count = size("count", 1);
    Graph& g = out.step;
    const BufferId a = buffer(g, "a", {count, m, k}, type), b = buffer(g, "b", {count, k, n}, type),
                   c = buffer(g, "c", {count, m, n}, type);
    g.add_task(Kind::forward, Op::matmul, g.add_layer("product"), g.add_attrs({}), {a, b}, {c});
  }

  void convolution(MeasuredKernel& out) {
    const DType type = precision(out);
    const auto* image = required("image").as_array();
    if (image == nullptr || image->size() != 4) fail("image: not four sizes; write [samples, channels, height, width]");
    std::array<std::int64_t, 4> x{};
    for (std::size_t i = 0; i < 4; ++i) x[i] = whole("image", *image->get(i));
    const std::int64_t channels = size("out"), kernel = size("kernel"), stride = size("stride", 1),
                       groups = size("groups", 1);
    if (x[1] % groups != 0 || channels % groups != 0)
      fail("groups: {} and {} channels do not divide into {}; give a divisor of both", x[1], channels, groups);
    if (kernel > std::min(x[2], x[3]) + kernel / 2 * 2)
      fail("kernel: {} does not fit an image of {} x {}; give a smaller one", kernel, x[2], x[3]);
    const std::int64_t padding = kernel / 2;
    const auto extent = [&](std::int64_t of) { return (of + 2 * padding - kernel) / stride + 1; };
    const Kind kind = pass();
    Graph& g = out.step;
    const BufferId in = buffer(g, "x", {x[0], x[1], x[2], x[3]}, type, true);
    const BufferId y = buffer(g, "y", {x[0], channels, extent(x[2]), extent(x[3])}, type, true);
    const Shape filter = groups == 1 ? Shape{channels, x[1], kernel, kernel}
                                     : Shape{groups, channels / groups, x[1] / groups, kernel, kernel};
    const BufferId w = buffer(g, "w", filter, type);
    const AttrsId attrs = g.add_attrs({{"out", channels},
                                       {"kernel", std::vector<std::int64_t>{kernel, kernel}},
                                       {"stride", std::vector<std::int64_t>{stride, stride}},
                                       {"padding", std::vector<std::int64_t>(4, padding)},
                                       {"dilation", std::vector<std::int64_t>{1, 1}},
                                       {"groups", groups},
                                       {"bias", std::int64_t{0}}});
    const LayerId layer = g.add_layer("convolution");
    if (kind == Kind::forward) g.add_task(kind, Op::conv2d, layer, attrs, {in, w, kNone}, {y});
    if (kind == Kind::input_grad) g.add_task(kind, Op::conv2d, layer, attrs, {y, w}, {in});
    if (kind == Kind::weight_grad) g.add_task(kind, Op::conv2d, layer, attrs, {in, y}, {w, kNone});
  }

  void attention(MeasuredKernel& out) {
    const DType type = precision(out);
    const std::int64_t batch = size("batch"), sequence = size("sequence"), heads = size("heads"), width = size("width");
    const toml::node* causal = find("causal");
    if (causal != nullptr && !causal->is_boolean()) fail("causal: neither true nor false; write one of the two");
    if (width % heads != 0) fail("width: {} does not divide into {} heads; give a multiple", width, heads);
    const Kind kind = pass();
    if (kind == Kind::weight_grad) fail("pass: attention has no weights; give forward or input_grad");
    Graph& g = out.step;
    const BufferId q = buffer(g, "q", {batch, sequence, 3 * width}, type),
                   o = buffer(g, "o", {batch, sequence, width}, type),
                   lse = buffer(g, "lse", {batch, heads, sequence}, DType::f32);
    const AttrsId attrs =
        g.add_attrs({{"heads", heads}, {"causal", std::int64_t{causal != nullptr && causal->value_or(false) ? 1 : 0}}});
    const LayerId layer = g.add_layer("attention");
    if (kind == Kind::forward) {
      g.add_task(kind, Op::attention, layer, attrs, {q, kNone, kNone, kNone}, {o, lse});
      return;
    }
    const BufferId d_o = buffer(g, "do", {batch, sequence, width}, type),
                   dq = buffer(g, "dq", {batch, sequence, 3 * width}, type);
    g.add_task(kind, Op::attention, layer, attrs, {q, kNone, kNone, kNone, o, lse, d_o}, {dq, kNone, kNone});
  }

  // As many bytes are moved, reads and writes together.
  void elementwise(MeasuredKernel& out) {
    const std::int64_t bytes = quantity("bytes", Measure::bytes);
    Graph& g = out.step;
    const std::int64_t elements = std::max<std::int64_t>(1, bytes / 2 / bytes_of(DType::bf16));
    const BufferId x = buffer(g, "x", {elements}, DType::bf16), y = buffer(g, "y", {elements}, DType::bf16);
    g.add_task(Kind::forward, Op::activation, g.add_layer("copy"), g.add_attrs({{"function", std::string("relu")}}),
               {x}, {y});
  }

  const toml::table& table_;
  const std::string& file_;
  std::vector<std::string> known_;  // keys that were asked for
};

}  // namespace

std::vector<MeasuredKernel> parse_calibration(std::string_view text, const std::string& file) {
  const toml::table whole = parse_toml(text, file, "see docs/machines.md for an example of a calibration");
  std::vector<MeasuredKernel> kernels;
  for (const auto& [key, value] : whole) {
    if (key.str() != "kernel" || !value.is_array_of_tables())
      fail_user("{}:{}: {}: unknown; a calibration has sections [[kernel]] and nothing else", file,
                value.source().begin.line, key.str());
    for (const toml::node& section : *value.as_array())
      kernels.push_back(KernelSection(*section.as_table(), file).read());
  }
  if (kernels.empty()) fail_user("{}: no kernel is in it; add a section [[kernel]] for each that was measured", file);
  return kernels;
}

KernelFactors factors_of(std::span<const MeasuredKernel> kernels, const DeviceType& device, const std::string& file) {
  const auto mean_of = [&](KernelClass kind, const auto& ratio) {
    double sum = 0, count = 0;
    for (const MeasuredKernel& kernel : kernels) {
      if (kernel.kind != kind) continue;
      sum += std::log(ratio(kernel));
      ++count;
    }
    return count == 0 ? 1 : std::exp(sum / count);
  };
  KernelFactors factors;
  factors.launch = mean_of(KernelClass::launch, [&](const MeasuredKernel& kernel) {
    return static_cast<double>(kernel.ns) / static_cast<double>(kernel_table(device).launch_ns);
  });
  const auto ratio = [&](const MeasuredKernel& kernel) {
    const TaskCost cost =
        kernel_times(kernel.step, device, {.tf32 = kernel.tf32, .factors = {.launch = factors.launch}})[0];
    const std::int64_t work = std::max(cost.compute_ns, cost.memory_ns), launch = cost.ns - work;
    if (kernel.ns <= launch)
      fail_user("{}: a {} of {} ns takes no longer than its launch, {} ns on {}; measure a larger one, or the launch",
                file, kKinds[static_cast<std::size_t>(kernel.kind)], kernel.ns, launch, device.name);
    return static_cast<double>(kernel.ns - launch) / static_cast<double>(work);
  };
  factors.products = mean_of(KernelClass::product, ratio);
  factors.convolutions = mean_of(KernelClass::convolution, ratio);
  factors.attention = mean_of(KernelClass::attention, ratio);
  factors.elementwise = mean_of(KernelClass::elementwise, ratio);
  return factors;
}

KernelFactors load_calibration(const std::string& file, const DeviceType& device) {
  return factors_of(parse_calibration(read_file(file), file), device, file);
}

}  // namespace overtake
