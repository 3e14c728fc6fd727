// Programs of chains as text, their gradients and slots, and what the passes make of graphs.

#include "ops/chain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "ops/op.h"
#include "overtake/model.h"
#include "passes/fuse_elementwise.h"
#include "passes/pass.h"

namespace overtake {
namespace {

Chain chain(const std::string& program, std::size_t operands, std::vector<std::int64_t> results) {
  return chain_of(Attrs{{"program", program}, {"results", std::move(results)}}, operands);
}

std::string program_of(const Chain& c) { return attrs_of(c).text("program"); }

TEST(ChainText, ComesBackAsItWas) {
  for (const char* text : {"add 0 1", "mul 0 1; gelu 2; add 3 0", "clip 0 min=-0.1 max=6; clip' 0 1 min=-0.1 max=6",
                           "leaky_relu 0 alpha=0.01; elu 1 alpha=1"}) {
    const Chain c = chain(text, 2, {2});
    EXPECT_EQ(program_of(c), text);
    EXPECT_EQ(attrs_of(c).integers("results"), (std::vector<std::int64_t>{2}));
  }
}

TEST(ChainText, ErrorsSayWhichStep) {
  const auto message = [](const std::string& text, std::int64_t result) {
    try {
      chain(text, 2, {result});
    } catch (const ShapeError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message("add 0", 2), "step 'add 0' has too few registers");
  EXPECT_EQ(message("add 0 2", 2), "step 'add 0 2' reads register 2 of 2");
  EXPECT_EQ(message("gelu x", 2), "step 'gelu x': no number: 'x'");
  EXPECT_EQ(message("clip 0 6", 2), "step 'clip 0 6': '6' is no parameter");
  EXPECT_EQ(message("add 0 1", 3), "result 3 of 3 registers");
}

// What is read back is as little as can be: the result where a derivative comes from it, no operand that only adds.
TEST(ChainGradient, ReadsWhatItNeeds) {
  const ChainGradient relu = gradient_of(chain("add 0 1; relu 2", 2, {3}), {true, true});
  EXPECT_EQ(program_of(relu.chain), "relu' 0 1");
  EXPECT_TRUE(relu.operands.empty());
  EXPECT_TRUE(relu.reads_result);
  EXPECT_EQ(relu.gradients, (std::vector<std::uint32_t>{0, 0}));

  const ChainGradient sum = gradient_of(chain("add 0 1; add 2 3", 3, {4}), {true, false, true});
  EXPECT_TRUE(sum.chain.results.empty());
  EXPECT_EQ(sum.gradients, (std::vector<std::uint32_t>{ChainGradient::kWhole, kNone, ChainGradient::kWhole}));

  // x sigmoid(c x), where c is a constant
  const ChainGradient gate = gradient_of(chain("mul 0 1; sigmoid 2; mul 0 3", 2, {4}), {true, false});
  EXPECT_EQ(gate.operands, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_FALSE(gate.reads_result);
  EXPECT_EQ(program_of(gate.chain), "mul 0 1; sigmoid 3; mul 2 4; mul 2 0; sigmoid' 4 6; mul 7 1; add 5 8");
}

double run(const Chain& c, const std::vector<double>& operands, std::size_t result) {
  // Only slots: an overwritten value would show.
  const ChainSlots slots = slots_of(c);
  std::vector<double> held(slots.count, std::nan(""));
  for (std::size_t i = 0; i < operands.size(); ++i) held[slots.of_register[i]] = operands[i];
  for (std::size_t i = 0; i < c.steps.size(); ++i) {
    const double a = held[slots.of_register[c.steps[i].a]], b = held[slots.of_register[c.steps[i].b]];
    held[slots.of_register[c.operands + i]] = c.steps[i].kind == ChainStep::Kind::add ? a + b : a * b;
  }
  return held[slots.of_register[c.results[result]]];
}

// Random polynomials: the gradient program, run in its slots, against differences of the forward program.
TEST(ChainGradient, OfRandomPolynomials) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    Chain c;
    c.operands = 1 + static_cast<std::uint32_t>(random() % 4);
    const auto steps = 1 + static_cast<std::uint32_t>(random() % 6);
    for (std::uint32_t i = 0; i < steps; ++i) {
      const auto pick = [&] { return static_cast<std::uint32_t>(random() % (c.operands + i)); };
      c.steps.push_back({random() % 2 == 0 ? ChainStep::Kind::add : ChainStep::Kind::mul, pick(), pick()});
    }
    c.results = {c.operands + steps - 1};
    std::vector<double> x;
    std::vector<bool> wants;
    for (std::uint32_t i = 0; i < c.operands; ++i) {
      x.push_back(static_cast<double>(random() % 1000) / 500 - 1);
      wants.push_back(random() % 4 != 0);
    }
    const ChainGradient back = gradient_of(c, wants);
    std::vector<double> reads;
    for (const std::uint32_t i : back.operands) reads.push_back(x[i]);
    if (back.reads_result) reads.push_back(run(c, x, 0));
    reads.push_back(0.7);
    for (std::uint32_t i = 0; i < c.operands; ++i) {
      if (!wants[i]) {
        EXPECT_EQ(back.gradients[i], kNone);
        continue;
      }
      std::vector<double> above = x, below = x;
      above[i] += 1e-5;
      below[i] -= 1e-5;
      const double want = 0.7 * (run(c, above, 0) - run(c, below, 0)) / 2e-5;
      const std::uint32_t at = back.gradients[i];
      const double got = at == kNone ? 0 : at == ChainGradient::kWhole ? 0.7 : run(back.chain, reads, at);
      EXPECT_NEAR(got, want, 1e-5 * std::max(1.0, std::abs(want))) << program_of(c) << ", operand " << i;
    }
  }
}

TEST(ChainText, DirectUses) {
  const auto use = [](const std::string& text, std::size_t operands, std::uint32_t operand) {
    const auto last = static_cast<std::int64_t>(operands) + std::ranges::count(text, ';');
    return direct_use(chain(text, operands, {last}), operand);
  };
  EXPECT_EQ(use("mul 0 1; add 3 2", 3, 0)->other, 1u);
  EXPECT_EQ(use("add 0 1; add 3 2", 3, 1)->kind, ChainStep::Kind::add);
  EXPECT_FALSE(use("mul 0 1; gelu 3; add 4 2", 3, 0));
  EXPECT_FALSE(use("gelu 1; mul 0 3; add 4 2", 3, 0));  // the other factor is nowhere in memory
  EXPECT_FALSE(use("mul 0 1; add 3 0; add 4 2", 3, 0));
  EXPECT_FALSE(use("mul 0 1; add 3 3; add 4 2", 3, 0));
}

TEST(Repeated, ByDimensions) {
  const std::uint8_t plain[] = {0, 1, 2, 3}, last[] = {0, 2, 3, 1};
  const auto is = [](const std::optional<Repeated>& r, std::int64_t inner, std::int64_t extent) {
    return r && r->inner == inner && r->extent == extent;
  };
  const Shape image{2, 6, 4, 5};
  EXPECT_TRUE(is(repeated({1}, image, plain), 240, 1));
  EXPECT_TRUE(is(repeated({6, 1, 1}, image, plain), 20, 6));
  EXPECT_TRUE(is(repeated({6, 1, 1}, image, last), 1, 6));
  EXPECT_TRUE(is(repeated({2, 1, 1, 1}, image, last), 120, 2));
  EXPECT_TRUE(is(repeated({6, 4, 5}, image, plain), 1, 120));
  EXPECT_TRUE(is(repeated({5}, image, last), 6, 5));
  EXPECT_FALSE(repeated({6, 1, 5}, image, plain));
}

// A gate as ONNX files write it: three tasks and a constant become one, and the record of the pass has the bytes.
TEST(FuseElementwise, SavesBytes) {
  Model m("gate", 4);
  const Value x = m.linear(m.input({16}), {.out = 32}, "first");
  const float factor = 1.702f;
  const Value gated = m.mul(x, m.activation(m.mul(x, m.constant({1}, std::span(&factor, 1), "factor")), "sigmoid"));
  m.cross_entropy(m.linear(gated, {.out = 10}, "last"));
  PassRunner runner;
  const Graph g = runner.run(Pass<Graph>{"fuse_elementwise", fuse_elementwise}, std::move(m).finish());
  EXPECT_EQ(std::ranges::count(g.tasks, Op::chain, &Task::op), 1);
  EXPECT_EQ(std::ranges::count(g.tasks, Op::mul, &Task::op), 0);
  // Forward: between the three tasks went x again twice, and two tensors both ways; the number is read once either way.
  EXPECT_EQ(runner.records().back().bytes_saved, 4.0 * 32 * 4 * 5);
}

}  // namespace
}  // namespace overtake
