#include "ops/check_task.h"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "ops/task_operands.h"

namespace overtake {
namespace {

using Names = std::map<std::string, std::pair<OperandRule::Is, std::size_t>, std::less<>>;

// A word of a rule: a name, what it is shaped like, and marks.
OperandRule operand_of(std::string_view word, std::string& like) {
  OperandRule rule;
  for (; !word.empty(); word.remove_suffix(1)) {
    if (word.back() == '?')
      rule.is_optional = true;
    else if (word.back() == '!')
      rule.is_exact = true;
    else if (word.back() == '#')
      rule.may_be_integer = true;
    else if (word.back() == '+')
      rule.may_be_taller = true;
    else
      break;
  }
  const std::size_t colon = word.find(':');
  rule.name = word.substr(0, colon);
  like = colon == std::string_view::npos ? "" : std::string(word.substr(colon + 1));
  return rule;
}

struct Words {
  struct Word {
    OperandRule operand;
    std::string like;
  };
  std::vector<Word> inputs, reads, writes;  // inputs: those of the reads before the comma, or all
  bool reads_repeat = false, writes_repeat = false;
};

Words words_of(std::string_view text) {
  Words all;
  bool is_writes = false, has_comma = false;
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    std::string_view word = text.substr(0, space);
    text.remove_prefix(std::min(space + 1, text.size()));
    if (word == "->") {
      is_writes = true;
      continue;
    }
    if (word == "...") {
      (is_writes ? all.writes_repeat : all.reads_repeat) = true;
      continue;
    }
    const bool ends_inputs = word.ends_with(',');
    if (ends_inputs) word.remove_suffix(1);
    Words::Word one;
    one.operand = operand_of(word, one.like);
    (is_writes ? all.writes : all.reads).push_back(one);
    if (ends_inputs) {
      all.inputs = all.reads;
      has_comma = true;
    }
  }
  if (!has_comma) all.inputs = all.reads;
  return all;
}

// What the names of the forward task are to the op's form: first its inputs, then its parameters, then its outputs.
Names names_of(const Words& forward) {
  Names names;
  std::size_t parameters = 0, outputs = 0;
  for (std::size_t i = 0; i < forward.reads.size(); ++i) {
    const auto& [operand, like] = forward.reads[i];
    if (!like.empty()) continue;
    const bool is_input = i < forward.inputs.size();
    names[operand.name] =
        is_input ? std::pair(OperandRule::Is::input, i) : std::pair(OperandRule::Is::parameter, parameters++);
  }
  for (const auto& [operand, like] : forward.writes)
    if (like.empty() && !names.contains(operand.name)) names[operand.name] = {OperandRule::Is::output, outputs++};
  return names;
}

OperandRule resolved(const Words::Word& word, const Names& names, const TaskRule& rule) {
  OperandRule operand = word.operand;
  if (word.like == "any" || names.empty()) return operand;
  auto found = names.find(word.like.empty() ? operand.name : word.like);
  if (found == names.end() && word.like.empty() && operand.name.starts_with('d')) {
    operand.is_gradient = true;
    found = names.find(std::string_view(operand.name).substr(1));
  }
  OVERTAKE_CHECK(found != names.end(), "the rule \"{}\": what is {}?", rule.operands, operand.name);
  operand.is_gradient = operand.is_gradient || !word.like.empty();
  std::tie(operand.is, operand.index) = found->second;
  return operand;
}

std::vector<ParsedTaskRule> parsed_rules(const OpTraits& op) {
  Names names;
  Words forward;
  for (const TaskRule& rule : op.tasks)
    if (op.form != nullptr && (rule.kinds & kinds(Kind::forward)) != 0)
      names = names_of(forward = words_of(rule.operands));
  std::vector<ParsedTaskRule> all;
  for (const TaskRule& rule : op.tasks) {
    const Words words = words_of(rule.operands);
    ParsedTaskRule parsed{.reads = {},
                          .writes = {},
                          .reads_repeat = words.reads_repeat,
                          .writes_repeat = words.writes_repeat,
                          .inputs = forward.inputs.size(),
                          .inputs_repeat = forward.reads_repeat};
    for (const Words::Word& w : words.reads) parsed.reads.push_back(resolved(w, names, rule));
    for (const Words::Word& w : words.writes) parsed.writes.push_back(resolved(w, names, rule));
    all.push_back(std::move(parsed));
  }
  return all;
}

const std::vector<ParsedTaskRule>& parsed_rules(Op op) {
  static const std::array<std::vector<ParsedTaskRule>, kOpCount> table = [] {
    std::array<std::vector<ParsedTaskRule>, kOpCount> all;
    for (std::size_t i = 0; i < kOpCount; ++i) all[i] = parsed_rules(traits(static_cast<Op>(i)));
    return all;
  }();
  return table[static_cast<std::size_t>(op)];
}

void check_task(const Graph& g, TaskId t) {
  const Task& task = g.tasks[t];
  const std::span<const TaskRule> rules = traits(task.op).tasks;
  if (rules.empty()) return;  // a block, which may be anything
  const auto rule = std::ranges::find_if(rules, [&](const TaskRule& r) { return (r.kinds & kinds(task.kind)) != 0; });
  OVERTAKE_CHECK(rule != rules.end(), "task {}: the op {} has no tasks of kind {}", g.task_name(t), to_string(task.op),
                 to_string(task.kind));
  const TaskOperands operands(g, t, *rule, parsed_rules(task.op)[static_cast<std::size_t>(rule - rules.begin())]);
  try {
    rule->check != nullptr ? rule->check(operands) : operands.expect_form();
  } catch (const ShapeError& e) {
    operands.fail(e.what());
  }
}

// Everything that rules look at, as one number and for comparison. Most tasks of a large graph are like another one:
// of another layer, micro-batch or device.
class TaskLikeness {
 public:
  explicit TaskLikeness(const Graph& g) : g_(g) {}

  std::uint64_t hash(const Task& t) const {
    std::uint64_t h = static_cast<std::uint64_t>(t.op) | static_cast<std::uint64_t>(t.kind) << 8 |
                      std::uint64_t{t.reads} << 16 | std::uint64_t{t.writes} << 32;
    mix(h, t.attrs);
    for (const BufferId b : operands(t)) {
      if (b == kNone) {
        mix(h, kNone);
        continue;
      }
      const Buffer& x = g_.buffers[b];
      mix(h, static_cast<std::uint64_t>(x.dtype) | std::uint64_t{x.shape.rank} << 8);
      for (const std::int64_t d : x.shape.span()) mix(h, static_cast<std::uint64_t>(d));
    }
    return h;
  }

  // Rules also ask whether two operands are one, or one of them the kernel's own.
  bool are_alike(const Task& a, const Task& b) const {
    if (a.op != b.op || a.kind != b.kind || a.attrs != b.attrs || a.reads != b.reads || a.writes != b.writes)
      return false;
    const auto of_a = operands(a), of_b = operands(b);
    for (std::size_t i = 0; i < of_a.size(); ++i) {
      if ((of_a[i] == kNone) != (of_b[i] == kNone)) return false;
      if (of_a[i] == kNone) continue;
      const Buffer &x = g_.buffers[of_a[i]], &y = g_.buffers[of_b[i]];
      if (x.dtype != y.dtype || x.shape != y.shape || (x.role == Role::scratch) != (y.role == Role::scratch))
        return false;
    }
    return true;
  }

 private:
  std::span<const BufferId> operands(const Task& t) const {
    return {g_.operands.data() + t.first_read, std::size_t{t.reads} + t.writes};
  }
  static void mix(std::uint64_t& h, std::uint64_t x) {
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
  }

  const Graph& g_;
};

}  // namespace

void check_tasks(const Graph& graph) {
  const TaskLikeness likeness(graph);
  std::unordered_map<std::uint64_t, TaskId> checked;  // one of each kind that was found right
  for (TaskId t = 0; t < graph.tasks.size(); ++t) {
    // An update writes the very buffers that it reads, which is not seen in shapes.
    if (graph.tasks[t].kind == Kind::update) {
      check_task(graph, t);
      continue;
    }
    const auto [like, is_new] = checked.try_emplace(likeness.hash(graph.tasks[t]), t);
    if (!is_new && likeness.are_alike(graph.tasks[like->second], graph.tasks[t])) continue;
    check_task(graph, t);
  }
}

}  // namespace overtake
