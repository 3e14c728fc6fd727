// results = program(x0, x1, ...), elementwise: what fusing makes of neighbouring activations, adds and muls
// forward:    reads x...               writes y            (one result)
// input_grad: reads some x..., y?, dy  writes dx...        (a program of its own: forward as far as needed, then back)
// An x has the result's shape, or is broadcast to it, repeating as repeated() says; if it then takes a gradient, only
// as direct_use() says. attributes: program: steps, separated by "; ", each making the next register after the
// operands: "add 0 1", "mul 0 2",
//                      "gelu 3", "clip 3 min=0 max=6", or "gelu' 3 5": the derivative at register 3 times register 5
//             results: registers

#include "ops/chain.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <sstream>
#include <tuple>

#include "ops/broadcast.h"
#include "ops/rules.h"
#include "ops/task_operands.h"

namespace overtake {
namespace {

using StepKind = ChainStep::Kind;
using Step = ChainStep;

bool has_two(const Step& s) { return s.kind != StepKind::function; }

std::string text_of(const Step& s) {
  if (s.kind == StepKind::add || s.kind == StepKind::mul)
    return fmt::format("{} {} {}", s.kind == StepKind::add ? "add" : "mul", s.a, s.b);
  std::string text = s.function.text("function");
  text += s.kind == StepKind::function ? fmt::format(" {}", s.a) : fmt::format("' {} {}", s.a, s.b);
  for (const char* parameter : {"alpha", "min", "max"})
    if (s.function.has(parameter)) text += fmt::format(" {}={}", parameter, s.function.real(parameter));
  return text;
}

template <class T>
T number(std::string_view text, const std::string& step) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) fail_shape("step '{}': no number: '{}'", step, text);
  return value;
}

Step step_of(const std::string& text, std::uint32_t registers) {
  std::istringstream words(text);
  std::string name, word;
  words >> name;
  Step s;
  if (name == "add" || name == "mul") {
    s.kind = name == "add" ? StepKind::add : StepKind::mul;
  } else {
    s.kind = name.ends_with('\'') ? StepKind::slope : StepKind::function;
    s.function.set("function", s.kind == StepKind::slope ? name.substr(0, name.size() - 1) : name);
  }
  for (std::uint32_t* at : {&s.a, &s.b}) {
    if (at == &s.b && !has_two(s)) break;
    if (!(words >> word)) fail_shape("step '{}' has too few registers", text);
    *at = number<std::uint32_t>(word, text);
    if (*at >= registers) fail_shape("step '{}' reads register {} of {}", text, *at, registers);
  }
  while (words >> word) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) fail_shape("step '{}': '{}' is no parameter", text, word);
    s.function.set(word.substr(0, equals), number<double>(std::string_view(word).substr(equals + 1), text));
  }
  return s;
}

OpForm form(std::span<const TensorType> inputs, const Attrs& attrs) {
  const Chain chain = chain_of(attrs, inputs.size());
  if (chain.results.size() != 1) fail_shape("{} results; a forward chain has one", chain.results.size());
  const auto rule = traits(Op::activation).form;
  for (const Step& s : chain.steps)
    if (s.kind == StepKind::function) rule(inputs.first(1), s.function);
  const auto largest = std::ranges::max_element(inputs, {}, [](const TensorType& x) { return x.shape.elements(); });
  return {.parameters = {}, .outputs = {{"", largest->shape, largest->dtype}}};
}

// Of an operand that is broadcast: as the add or mul would that it came from.
void sum_gradient(Gradient& g, const Chain& chain, std::uint32_t operand) {
  const auto use = direct_use(chain, operand);
  OVERTAKE_CHECK(use, "operand {} of a chain is broadcast and has a gradient", operand);
  const bool is_add = use->kind == StepKind::add;
  const BufferId reads[] = {g.grad_out(0), is_add ? kNone : g.in(use->other)}, made = g.grad_in(operand);
  g.emit(Kind::input_grad, is_add ? Op::add : Op::mul, {}, std::span(reads).first(is_add ? 1 : 2), {&made, 1});
}

void gradient(Gradient& g) {
  const std::size_t operands = g.forward().reads;
  const Chain chain = chain_of(g.graph().attrs_of(g.forward()), operands);
  const BufferId dy = g.grad_out(0);
  std::vector<bool> wants;
  for (std::uint32_t i = 0; i < operands; ++i) {
    const bool is_whole = g.graph().buffers[g.in(i)].shape == g.graph().buffers[g.out(0)].shape;
    wants.push_back(g.wants(i) && is_whole);
    if (g.wants(i) && !is_whole) sum_gradient(g, chain, i);
  }
  const ChainGradient back = gradient_of(chain, wants);
  std::vector<BufferId> reads, writes(back.chain.results.size(), kNone);
  for (const std::uint32_t i : back.operands) reads.push_back(g.in(i));
  if (back.reads_result) reads.push_back(g.out(0));
  reads.push_back(dy);
  // Operands with the same gradient share it; a weight's is its own, so others come first.
  std::vector<std::pair<std::size_t, BufferId>> passed;
  for (const bool weights : {false, true})
    for (std::size_t i = 0; i < operands; ++i) {
      const bool is_weight = g.graph().buffers[g.in(i)].role == Role::weight;
      if (back.gradients[i] == kNone || is_weight != weights) continue;
      const bool is_whole = back.gradients[i] == ChainGradient::kWhole;
      if (!is_whole && writes[back.gradients[i]] == kNone)
        writes[back.gradients[i]] = g.grad_in(i);
      else
        passed.emplace_back(i, is_whole ? dy : writes[back.gradients[i]]);
    }
  if (!writes.empty()) g.emit(Kind::input_grad, Op::chain, attrs_of(back.chain), reads, writes);
  for (const auto& [i, made] : passed) g.pass(i, made);
}

double flops(const Graph& g, const Task& t) {
  const auto steps = chain_of(g.attrs_of(t), t.reads).steps.size();
  return static_cast<double>(steps) * static_cast<double>(g.buffers[g.writes(t)[0]].shape.elements());
}

// A result is written when everything is read.
std::vector<InPlace> in_place(const Task& t) {
  std::vector<InPlace> all;
  for (std::uint8_t i = 0; i < t.reads; ++i) all.push_back({static_cast<std::uint8_t>(t.reads - 1 - i), 0});
  return all;
}

// Emits steps in front of which operands stand, and forgets those that no result needs.
class Emitter {
 public:
  explicit Emitter(std::uint32_t operands) { chain_.operands = operands; }

  std::uint32_t emit(const Step& s) {
    chain_.steps.push_back(s);
    return chain_.operands + static_cast<std::uint32_t>(chain_.steps.size()) - 1;
  }
  std::uint32_t sum(const std::vector<std::uint32_t>& parts) {
    std::uint32_t total = parts[0];
    for (std::size_t i = 1; i < parts.size(); ++i) total = emit({StepKind::add, total, parts[i]});
    return total;
  }

  // What is left for these results, and which operands; registers are counted anew.
  std::pair<Chain, std::vector<std::uint32_t>> finish(const std::vector<std::uint32_t>& results) const {
    const std::uint32_t operands = chain_.operands;
    std::vector<char> needed(operands + chain_.steps.size(), 0);
    for (const std::uint32_t r : results) needed[r] = 1;
    for (std::size_t i = chain_.steps.size(); i-- > 0;) {
      if (!needed[operands + i]) continue;
      needed[chain_.steps[i].a] = 1;
      if (has_two(chain_.steps[i])) needed[chain_.steps[i].b] = 1;
    }
    Chain left;
    std::vector<std::uint32_t> kept, now(needed.size(), kNone);
    for (std::uint32_t r = 0; r < operands; ++r) {
      if (!needed[r]) continue;
      now[r] = left.operands++;
      kept.push_back(r);
    }
    for (std::size_t i = 0; i < chain_.steps.size(); ++i) {
      if (!needed[operands + i]) continue;
      Step s = chain_.steps[i];
      s.a = now[s.a];
      s.b = has_two(s) ? now[s.b] : 0;
      now[operands + i] = left.operands + static_cast<std::uint32_t>(left.steps.size());
      left.steps.push_back(s);
    }
    for (const std::uint32_t r : results) left.results.push_back(now[r]);
    return {left, kept};
  }

 private:
  Chain chain_;
};

// Which registers depend on a wanted operand.
std::vector<bool> registers_with_gradient(const Chain& forward, const std::vector<bool>& wants) {
  std::vector<bool> all = wants;
  for (const Step& s : forward.steps) all.push_back(all[s.a] || (has_two(s) && all[s.b]));
  return all;
}

// All that is read stretches to what is written, which has one shape.
void check(const TaskOperands& t) {
  const Chain chain = chain_of(t.attrs(), t.read_groups());
  if (chain.results.size() != t.write_groups() || (t.kind() == Kind::forward && chain.results.size() != 1))
    t.fail(fmt::format("a program of {} results for {} operands that are written", chain.results.size(),
                       t.write_groups()));
  const Shape result = t.written("y")->shape;
  for (std::size_t i = 0; i < t.write_groups(); ++i) {
    t.expect_shape("y", result, i);
    t.expect_float("y", i);
  }
  for (std::size_t i = 0; i < t.read_groups(); ++i) {
    t.expect_float("x", i);
    const Shape& x = t.read("x", i)->shape;
    if (x != result && (x.rank > result.rank || broadcast(x, result) != result))
      t.fail("x", t.read_id("x", i), fmt::format("one that stretches to {}", to_string(result)));
  }
}

constexpr TaskRule kTasks[] = {{kForwardOrGradient, "x ... -> y ...", check}};

}  // namespace

Attrs attrs_of(const Chain& chain) {
  std::string program;
  for (const Step& s : chain.steps) program += (program.empty() ? "" : "; ") + text_of(s);
  return {{"program", program}, {"results", std::vector<std::int64_t>(chain.results.begin(), chain.results.end())}};
}

Chain chain_of(const Attrs& attrs, std::size_t operands) {
  Chain chain;
  chain.operands = static_cast<std::uint32_t>(operands);
  const std::string& program = attrs.text("program");
  for (std::size_t begin = 0; begin < program.size();) {
    const std::size_t end = std::min(program.find("; ", begin), program.size());
    const auto registers = static_cast<std::uint32_t>(operands + chain.steps.size());
    chain.steps.push_back(step_of(program.substr(begin, end - begin), registers));
    begin = end + 2;
  }
  for (const std::int64_t r : attrs.integers("results")) {
    if (r < 0 || r >= std::ssize(chain.steps) + static_cast<std::int64_t>(operands))
      fail_shape("result {} of {} registers", r, operands + chain.steps.size());
    chain.results.push_back(static_cast<std::uint32_t>(r));
  }
  if (!fits_kernels(chain))
    fail_shape("a chain of {} operands, {} steps and {} results", operands, chain.steps.size(), chain.results.size());
  return chain;
}

ChainSlots slots_of(const Chain& chain) {
  const std::size_t registers = chain.operands + chain.steps.size();
  std::vector<std::size_t> last_use(registers, 0);  // by number of step; kept for ever: all of them
  for (std::size_t i = 0; i < chain.steps.size(); ++i) {
    last_use[chain.steps[i].a] = i;
    if (has_two(chain.steps[i])) last_use[chain.steps[i].b] = i;
  }
  for (const std::uint32_t r : chain.results) last_use[r] = chain.steps.size();
  ChainSlots slots;
  std::vector<std::uint32_t> holds;  // per slot
  for (std::uint32_t r = 0; r < registers; ++r) {
    const auto is_free = [&](std::uint32_t held) {
      return r >= chain.operands && last_use[held] <= r - chain.operands;
    };
    const auto slot = std::ranges::find_if(holds, is_free);
    slots.of_register.push_back(static_cast<std::uint8_t>(slot - holds.begin()));
    if (slot == holds.end())
      holds.push_back(r);
    else
      *slot = r;
  }
  slots.count = holds.size();
  return slots;
}

bool fits_kernels(const Chain& chain) {
  return chain.operands > 0 && chain.operands <= Chain::kMostOperands && chain.steps.size() <= Chain::kMostSteps &&
         !chain.results.empty() && chain.results.size() <= Chain::kMostResults &&
         slots_of(chain).count <= Chain::kMostSlots;
}

// Goes through the steps backwards as differentiate goes through tasks, so sums come in the same order.
ChainGradient gradient_of(const Chain& forward, const std::vector<bool>& wants) {
  const std::uint32_t n = forward.operands, y = n, dy = n + 1;
  const auto last = static_cast<std::uint32_t>(forward.steps.size()) - 1;
  const std::vector<bool> has_gradient = registers_with_gradient(forward, wants);
  Emitter emitter(n + 2);
  std::vector<std::uint32_t> value(n + forward.steps.size());  // where the forward's registers are here
  for (std::uint32_t r = 0; r < n; ++r) value[r] = r;
  for (std::uint32_t i = 0; i <= last; ++i) {
    Step s = forward.steps[i];
    s.a = value[s.a];
    s.b = has_two(s) ? value[s.b] : 0;
    value[n + i] = i == last ? y : emitter.emit(s);
  }
  std::vector<std::vector<std::uint32_t>> parts(value.size());
  parts[n + last] = {dy};
  for (std::uint32_t i = last + 1; i-- > 0;) {
    const Step& s = forward.steps[i];
    if (!has_gradient[n + i] || parts[n + i].empty()) continue;
    const std::uint32_t d = emitter.sum(parts[n + i]);
    const auto give = [&](std::uint32_t to, const std::function<std::uint32_t()>& part) {
      if (has_gradient[to]) parts[to].push_back(part());
    };
    if (s.kind == StepKind::function) {
      const bool from_output = derivative_uses_output(s.function.text("function"));
      give(s.a, [&] {
        return emitter.emit({StepKind::slope, from_output ? value[n + i] : value[s.a], d, s.function});
      });
    } else {
      const bool is_add = s.kind == StepKind::add;
      give(s.a, [&] { return is_add ? d : emitter.emit({StepKind::mul, d, value[s.b]}); });
      give(s.b, [&] { return is_add ? d : emitter.emit({StepKind::mul, d, value[s.a]}); });
    }
  }
  ChainGradient back;
  std::vector<std::uint32_t> results;
  for (std::uint32_t r = 0; r < n; ++r) {
    back.gradients.push_back(kNone);
    if (!wants[r] || parts[r].empty()) continue;
    const std::uint32_t made = emitter.sum(parts[r]);
    if (made == dy) {
      back.gradients.back() = ChainGradient::kWhole;
      continue;
    }
    const auto found = std::ranges::find(results, made);
    back.gradients.back() = static_cast<std::uint32_t>(found - results.begin());
    if (found == results.end()) results.push_back(made);
  }
  if (results.empty()) return back;
  std::vector<std::uint32_t> kept;
  std::tie(back.chain, kept) = emitter.finish(results);
  for (const std::uint32_t r : kept)
    if (r < n) back.operands.push_back(r);
  back.reads_result = std::ranges::find(kept, y) != kept.end();
  return back;
}

std::optional<DirectUse> direct_use(const Chain& chain, std::uint32_t operand) {
  // The one step that reads a register, once; -1 where there are more or none.
  const auto reader_of = [&](std::uint32_t r) {
    std::ptrdiff_t found = -1;
    for (std::size_t i = 0; i < chain.steps.size(); ++i) {
      const bool is_a = chain.steps[i].a == r, is_b = has_two(chain.steps[i]) && chain.steps[i].b == r;
      if (!is_a && !is_b) continue;
      if (found >= 0 || (is_a && is_b)) return std::ptrdiff_t{-1};
      found = static_cast<std::ptrdiff_t>(i);
    }
    return found;
  };
  std::optional<DirectUse> use;
  for (std::uint32_t r = operand; r != chain.results[0];) {
    const std::ptrdiff_t i = reader_of(r);
    if (i < 0) return std::nullopt;
    const Step& s = chain.steps[static_cast<std::size_t>(i)];
    const bool is_first = r == operand;
    if (s.kind != StepKind::add && !(is_first && s.kind == StepKind::mul)) return std::nullopt;
    if (is_first) use = DirectUse{s.kind, s.a == r ? s.b : s.a};
    if (s.kind == StepKind::mul && use->other >= chain.operands) return std::nullopt;
    r = chain.operands + static_cast<std::uint32_t>(i);
  }
  return use;
}

std::optional<Repeated> repeated(const Shape& operand, const Shape& result, std::span<const std::uint8_t> order) {
  const std::size_t missing = static_cast<std::size_t>(result.rank) - operand.rank;
  Repeated found;
  bool is_inside = false, is_behind = false;  // of its dimensions, coming from the innermost
  for (std::size_t i = result.rank; i-- > 0;) {
    const std::size_t dim = order[i];
    if (result[dim] == 1) continue;
    const bool is_own = dim >= missing && operand[dim - missing] != 1;
    if (is_own && is_behind) return std::nullopt;
    if (is_own)
      found.extent *= result[dim];
    else if (is_inside)
      is_behind = true;
    else
      found.inner *= result[dim];
    is_inside = is_inside || is_own;
  }
  return found;
}

OpTraits chain_traits() {
  return {.op = Op::chain, .form = form, .gradient = gradient, .flops = flops, .in_place = in_place, .tasks = kTasks};
}

}  // namespace overtake
