#include "machine/kernel_times/kernel_times.h"

#include <algorithm>
#include <cmath>

#include "machine/kernel_times/convolution.h"
#include "machine/kernel_times/kernel_table.h"
#include "machine/kernel_times/product.h"
#include "ops/matmul.h"
#include "ops/op.h"

namespace overtake {
namespace {

// The time of one task, from what its operands are.
class KernelTimes {
 public:
  KernelTimes(const Graph& g, const DeviceType& device, const KernelOptions& options)
      : g_(g), device_(device), table_(kernel_table(device)), options_(options) {}

  TaskCost of(TaskId id) const {
    const Task& t = g_.tasks[id];
    if (t.op == Op::reshape) return {};  // a view
    const Work work = work_of(g_, id);
    const ProductTime arithmetic = arithmetic_of(t, work);
    TaskCost cost;
    const double factor = factor_of(t);
    cost.compute_ns = std::llround(factor * arithmetic.ns);
    cost.memory_ns = std::llround(factor * memory_ns(t, work.bytes));
    cost.beside_ns = std::llround(static_cast<double>(cost.compute_ns) * more_waves(arithmetic.tiles, device_));
    cost.ns = std::max(cost.compute_ns, cost.memory_ns) +
              std::llround(options_.factors.launch * static_cast<double>(kernels_of(t) * table_.launch_ns));
    return cost;
  }

 private:
  double factor_of(const Task& t) const {
    switch (t.op) {
      case Op::linear:
      case Op::matmul:
      case Op::lstm:
      case Op::gru:
        return options_.factors.products;
      case Op::conv2d:
        return options_.factors.convolutions;
      case Op::attention:
        return options_.factors.attention;
      default:
        return options_.factors.elementwise;
    }
  }
  bool has_bf16(const Task& t) const {
    const auto is_bf16 = [&](BufferId b) { return b != kNone && g_.buffers[b].dtype == DType::bf16; };
    return std::ranges::any_of(g_.reads(t), is_bf16) || std::ranges::any_of(g_.writes(t), is_bf16);
  }
  MatrixRate rate_of(const Task& t) const {
    return has_bf16(t) ? MatrixRate::bf16 : options_.tf32 ? MatrixRate::tf32 : MatrixRate::f32;
  }
  double bytes_of_buffer(BufferId b) const {
    const Buffer& x = g_.buffers[b];
    return static_cast<double>(x.shape.elements() * bytes_of(x.dtype));
  }

  ProductTime arithmetic_of(const Task& t, const Work& work) const {
    switch (t.op) {
      case Op::linear:
        return linear_time(t);
      case Op::matmul:
        return matmul_time(t);
      case Op::conv2d:
        return convolution_time(g_, t, rate_of(t), device_, table_);
      case Op::attention:
        return {attention_ns(t, work.flops), 0};
      case Op::lstm:
      case Op::gru:
        return {recurrence_ns(t, work.flops), 0};
      default:
        return {1e9 * work.flops / (table_.vector_part * static_cast<double>(device_.f32_flops)), 0};
    }
  }

  // Rows of operands are as long as these extents.
  ProductTime product(ProductShape s, std::initializer_list<std::int64_t> rows) const {
    const std::int64_t vector = s.rate == MatrixRate::bf16 ? 8 : 4;  // elements of 16 bytes
    s.is_aligned = std::ranges::all_of(rows, [&](std::int64_t extent) { return extent % vector == 0; });
    ProductTime time = product_time(s, device_, table_);
    time.ns += static_cast<double>(table_.product_ns);
    return time;
  }

  ProductTime linear_time(const Task& t) const {
    const bool is_weight_grad = t.kind == Kind::weight_grad;
    const Shape& rows = g_.buffers[g_.reads(t)[is_weight_grad ? 1 : 0]].shape;
    const BufferId weight = is_weight_grad ? g_.writes(t)[0] : g_.reads(t)[1];
    if (weight == kNone) return {};  // a bias alone
    const Shape& w = g_.buffers[weight].shape;
    const std::int64_t n = rows.elements() / rows.back();
    ProductShape s{.rate = rate_of(t)};
    switch (t.kind) {
      case Kind::forward:
        s.m = n, s.n = w[0], s.k = w[1];
        break;
      case Kind::input_grad:
        s.m = n, s.n = w[1], s.k = w[0];
        break;
      default:
        s.m = w[0], s.n = w[1], s.k = n;
    }
    return product(s, {w[0], w[1]});
  }

  ProductTime matmul_time(const Task& t) const {
    const MatmulView v = matmul_view(g_.attrs_of(t), g_.buffers[g_.reads(t)[0]].shape, g_.buffers[g_.reads(t)[1]].shape,
                                     g_.buffers[g_.writes(t)[0]].shape);
    std::int64_t count = 1;
    for (const std::int64_t extent : v.batch) count *= extent;
    return product({.m = v.m, .n = v.n, .k = v.k, .count = count, .rate = rate_of(t)}, {v.n, v.k});
  }

  double attention_ns(const Task& t, double flops) const {
    const bool is_forward = t.kind == Kind::forward;
    const Shape& q = g_.buffers[g_.reads(t)[0]].shape;
    const bool is_packed = g_.reads(t)[1] == kNone;
    const std::int64_t keys = is_packed ? q[1] : g_.buffers[g_.reads(t)[1]].shape[1];
    const std::int64_t head = (is_packed ? q[2] / 3 : q[2]) / g_.attrs_of(t).integer("heads");
    const std::size_t i = is_forward ? 0 : 1;
    const double long_part = table_.attention_part[i] * (head < 128 ? table_.narrow_head_part : 1);
    const double part = long_part * static_cast<double>(keys) / (static_cast<double>(keys) + table_.attention_half[i]);
    return 1e9 * flops / (part * matrix_flops_per_s(device_, rate_of(t)));
  }

  // Products of all places at once, and of one place after the other with a wait of all SMs in between.
  double recurrence_ns(const Task& t, double flops) const {
    const double products =
        1e9 * flops /
        (table_.product_part[static_cast<std::size_t>(rate_of(t))] * matrix_flops_per_s(device_, rate_of(t)));
    if (t.kind == Kind::weight_grad) return products;
    const Shape& states = g_.buffers[t.kind == Kind::forward ? g_.writes(t)[0] : g_.reads(t)[4]].shape;  // [B, T, H]
    return products + static_cast<double>(states[1] * table_.recurrent_ns);
  }

  // Memory traffic: each operand once, and what kernels read again.
  double memory_ns(const Task& t, double bytes) const {
    double rate = 1e-9 * table_.bandwidth_part * static_cast<double>(device_.memory_bytes_per_s());
    bytes += read_again(t);
    if (t.op == Op::embedding && t.kind == Kind::weight_grad) rate *= table_.scattered_part;
    const bool moves = bytes > 0;
    return bytes / rate + static_cast<double>((moves ? table_.ramp_ns : 0) + (sums_columns(t) ? table_.sum_ns : 0));
  }
  // Sums over rows that many blocks share, one of which adds up what all of them found.
  static bool sums_columns(const Task& t) {
    switch (t.op) {
      case Op::batch_norm:
        return t.kind != Kind::input_grad;
      case Op::layer_norm:
      case Op::group_norm:
        return t.kind == Kind::weight_grad;
      default:
        return false;
    }
  }
  double read_again(const Task& t) const {
    const auto again = [&](BufferId b) {
      return b == kNone || bytes_of_buffer(b) <= static_cast<double>(table_.cached_bytes) ? 0 : bytes_of_buffer(b);
    };
    switch (t.op) {
      case Op::batch_norm:
      case Op::group_norm:
        return t.kind == Kind::forward ? again(g_.reads(t)[0]) : 0;  // statistics first
      default:
        return 0;
    }
  }

  // Launches that a task takes.
  std::int64_t kernels_of(const Task& t) const {
    if (t.op == Op::attention && t.kind != Kind::forward) return 3;   // row sums of o do, the products, dq to its type
    if (t.op == Op::batch_norm && t.kind == Kind::forward) return 2;  // statistics, then what is made with them
    return 1;
  }

  const Graph& g_;
  const DeviceType& device_;
  const KernelTable& table_;
  const KernelOptions& options_;
};

}  // namespace

std::vector<TaskCost> kernel_times(const Graph& step, const DeviceType& device, const KernelOptions& options) {
  const KernelTimes times(step, device, options);
  std::vector<TaskCost> all(step.tasks.size());
  for (TaskId t = 0; t < step.tasks.size(); ++t) all[t] = times.of(t);
  return all;
}

}  // namespace overtake
