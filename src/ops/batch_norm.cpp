// y = function(gamma * (x - mean) * rstd + beta + residual?), statistics per channel over N, H, W
// forward:     reads x, residual?, gamma, beta, running_mean, running_var, moments?
//              writes y, mean, rstd, running_mean, running_var
//              (moments: those of all replicas, one after the other, where statistics are over the rows of all)
// weight_grad: reads x, dy, y?, mean, rstd, gamma, beta, dy2?      writes dgamma?, dbeta?, dz?
//              (dy2: a second part of the gradient of y, where dz is written)
//              (dz = dy where the function let through: the residual's gradient; y only where there is a residual and a
//              function; dgamma and dbeta where they are trained or needed for dx)
// input_grad:  reads x, dy or dz, mean, rstd, gamma, beta, dgamma, dbeta, add?      writes dx
//              (add: another part of the gradient of x, which dx comes out with)
// attributes:  eps, momentum, function ("none", "relu", without a residual also what the target fuses), training (0:
// use the running statistics), masked (input_grad
//              only: 1 when its gradient is dz already), replicas (input_grad only: dgamma and dbeta are sums over so
//              many times the rows of x; default 1)
// The input gradient needs both sums of the weight gradient, so here dW is on the critical path.
//
// batch_moments, forward: reads x   writes moments, as bytes of doubles [2, C]: per channel the mean and the sum of
//              squared deviations from it

#include "ops/rules.h"
#include "ops/task_operands.h"

namespace overtake {
namespace {

OpForm form(std::span<const TensorType> inputs, const Attrs&) {
  const TensorType& x = inputs[0];
  expect_rank(x, 4, "the input");
  if (inputs[1].is_present && inputs[1].shape != x.shape)
    fail_shape("the residual is {}, the input {}", to_string(inputs[1].shape), to_string(x.shape));
  const Shape c = {x.shape[1]};
  OpForm f;
  f.parameters = {{"weight", c, Role::weight, {Init::Kind::ones}},
                  {"bias", c, Role::weight, {}},
                  {"running_mean", c, Role::state, {}},
                  {"running_var", c, Role::state, {Init::Kind::ones}}};
  f.outputs = {{"", x.shape, x.dtype}, {"mean", c}, {"rstd", c}};
  return f;
}

void gradient(Gradient& g) {
  const BufferId x = g.in(0), dy = g.grad_out(0), gamma = g.in(2), beta = g.in(3), mean = g.out(1), rstd = g.out(2);
  Attrs attrs = g.graph().attrs_of(g.forward());
  const bool has_function = attrs.text("function") != "none", has_residual = g.in(1) != kNone;
  const bool is_masked_from_y = has_residual && has_function;
  // Where a gradient is not wanted for itself, but for dx, it is a temporary.
  const auto or_temporary = [&](BufferId gradient, const char* name, BufferId like) {
    if (gradient != kNone || !g.wants(0)) return gradient;
    const Buffer b = g.graph().buffers[like];
    return g.temporary(name, b.shape, b.dtype);
  };
  const BufferId dgamma = or_temporary(g.grad_in(2), "dgamma", mean), dbeta = or_temporary(g.grad_in(3), "dbeta", mean);
  BufferId dz = kNone;
  if (is_masked_from_y)
    dz = or_temporary(g.grad_in(1), "dz", x);
  else if (has_residual && g.wants(1))
    g.pass(1, dy);
  if (dgamma != kNone || dbeta != kNone || dz != kNone)
    g.emit(Kind::weight_grad, {x, dy, is_masked_from_y ? g.out(0) : kNone, mean, rstd, gamma, beta},
           {dgamma, dbeta, dz});
  if (!g.wants(0)) return;
  attrs.set("masked", std::int64_t{dz != kNone});
  const BufferId reads[] = {x, dz != kNone ? dz : dy, mean, rstd, gamma, beta, dgamma, dbeta}, dx = g.grad_in(0);
  g.emit(Kind::input_grad, Op::batch_norm, attrs, reads, {&dx, 1});
}

std::vector<InPlace> in_place(const Task& t) {
  if (t.kind == Kind::forward) return {{1, 0}};  // y over the residual
  if (t.kind == Kind::weight_grad && t.reads > 7) return {{1, 2}, {7, 2}};
  if (t.kind == Kind::weight_grad) return {{1, 2}};  // dz over dy
  if (t.reads > 8) return {{8, 0}, {1, 0}};          // dx over what is added to it
  return {{1, 0}};                                   // dx over dy or dz
}

double moments_flops(const Graph& g, const Task& t) {
  return 3.0 * static_cast<double>(g.buffers[g.reads(t)[0]].shape.elements());
}

constexpr std::int64_t kMomentsBytes = 2 * sizeof(double);  // of a channel

void check_forward(const TaskOperands& t) {
  t.expect_form();
  const Buffer* moments = t.read("moments");
  if (moments == nullptr) return;
  t.expect_type("moments", DType::u8);
  const std::int64_t own = kMomentsBytes * t.read("x")->shape[1];
  if (moments->shape.rank != 1 || moments->shape[0] == 0 || moments->shape[0] % own != 0)
    t.fail("moments", t.read_id("moments"), fmt::format("[{}] or a multiple of it", own));
}

void check_moments(const TaskOperands& t) {
  t.expect_float("x");
  t.expect_type("moments", DType::u8);
  if (t.read("x")->shape.rank != 4) t.fail("x", t.read_id("x"), "an image");
  t.expect_shape("moments", {kMomentsBytes * t.read("x")->shape[1]});
}

constexpr TaskRule kTasks[] = {
    {kForward,
     "x residual?, gamma beta running_mean running_var moments:any? -> y mean! rstd! running_mean running_var",
     check_forward},
    {kWeightGrad, "x dy y? mean! rstd! gamma beta dy2:y? -> dgamma? dbeta? dz:y?"},
    {kInputGrad, "x dy mean! rstd! gamma beta dgamma dbeta add:x? -> dx"}};
constexpr TaskRule kMomentsTasks[] = {{kForward, "x -> moments", check_moments}};

}  // namespace

OpTraits batch_norm_traits() {
  return {.op = Op::batch_norm, .form = form, .gradient = gradient, .in_place = in_place, .tasks = kTasks};
}

OpTraits batch_moments_traits() { return {.op = Op::batch_moments, .flops = moments_flops, .tasks = kMomentsTasks}; }

}  // namespace overtake
