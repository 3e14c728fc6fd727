// The tasks of the update.
// squared_norm: reads weight gradients  writes sums, the sum of squares of each, as bytes of doubles; there may be room
//            for more
// clip_norm: reads sums                   writes factor [2] = the global norm n, min(1, max_norm / (n + 1e-6)); NaN
//            where n is not finite
//            attributes: max_norm, order? (places in sums, in the order of the model's parameters, in which they are
//            added on every device; absent: all, as they lie)
// sgd:       reads w, dw, factor?, momentum?, copy?   writes w, momentum?, copy?
//            attributes: momentum, nesterov, weight_decay
// adamw:     reads w, dw, factor?, m, v, copy?        writes w, m, v, copy?
//            attributes: beta1, beta2, eps, weight_decay
// copy: the weight in another element type, for the kernels that read it. An update of several weights has all these
// operands of the first, then those of the second, and so on.
// The learning rate and the number of the step come with each step.

#include <algorithm>

#include "ops/rules.h"
#include "ops/task_operands.h"

namespace overtake {
namespace {

constexpr std::int64_t kSumBytes = sizeof(double);

void check_squared_norm(const TaskOperands& t) {
  for (std::size_t i = 0; i < t.read_groups(); ++i) t.expect_float("dw", i);
  t.expect_type("sums", DType::u8);
  const std::int64_t least = kSumBytes * static_cast<std::int64_t>(t.read_groups());
  if (t.written("sums")->shape.elements() < least)
    t.fail("sums", t.write_id("sums"), fmt::format("[{}] or more", least));
}

void check_clip_norm(const TaskOperands& t) {
  t.expect_type("sums", DType::u8);
  t.expect_type("factor", DType::f32);
  t.expect_shape("factor", {2});
  if (!t.attrs().has("order")) return;
  const std::int64_t places = t.read("sums")->shape.elements() / kSumBytes;
  for (const std::int64_t place : t.attrs().integers("order"))
    if (place < 0 || place >= places) t.fail("sums", t.read_id("sums"), fmt::format("one with a place {}", place));
}

// What is read and changed is one buffer, and all that belongs to a weight is shaped like it.
void check_update(const TaskOperands& t, std::initializer_list<const char*> states) {
  if (t.read_groups() != t.write_groups())
    t.fail(fmt::format("reads what belongs to {} weights and writes that of {}", t.read_groups(), t.write_groups()));
  for (std::size_t i = 0; i < t.read_groups(); ++i) {
    const Shape& w = t.read("w", i)->shape;
    const auto expect_changed = [&](const char* name) {
      t.expect_shape(name, w, i);
      if (t.read_id(name, i) != t.write_id(name, i)) t.fail(name, t.write_id(name, i), "the one that is read");
    };
    t.expect_shape("dw", w, i);
    t.expect_float("dw", i);
    t.expect_type("w", DType::f32, i);
    expect_changed("w");
    for (const char* state : states) {
      t.expect_type(state, DType::f32, i);
      expect_changed(state);
    }
    t.expect_float("copy", i);
    expect_changed("copy");
    t.expect_type("factor", DType::f32, i);
    t.expect_shape("factor", {2}, i);
  }
}

void check_sgd(const TaskOperands& t) { check_update(t, {"momentum"}); }
void check_adamw(const TaskOperands& t) { check_update(t, {"m", "v"}); }

constexpr Kinds kUpdate = kinds(Kind::update);
constexpr TaskRule kSquaredNorm[] = {{kUpdate, "dw ... -> sums", check_squared_norm}};
constexpr TaskRule kClipNorm[] = {{kUpdate, "sums -> factor", check_clip_norm}};
constexpr TaskRule kSgd[] = {{kUpdate, "w dw factor? momentum? copy? ... -> w momentum? copy? ...", check_sgd}};
constexpr TaskRule kAdamw[] = {{kUpdate, "w dw factor? m v copy? ... -> w m v copy? ...", check_adamw}};

}  // namespace

OpTraits squared_norm_traits() { return {.op = Op::squared_norm, .tasks = kSquaredNorm}; }
OpTraits clip_norm_traits() { return {.op = Op::clip_norm, .tasks = kClipNorm}; }
OpTraits sgd_traits() { return {.op = Op::sgd, .tasks = kSgd}; }
OpTraits adamw_traits() { return {.op = Op::adamw, .tasks = kAdamw}; }

}  // namespace overtake
