#include <gtest/gtest.h>

#include "models/onnx/proto.h"
#include "onnx_writer.h"
#include "temporary_folder.h"

namespace overtake::onnx {
namespace {

using write::Message;

std::string parse_error_of(const write::ModelParts& parts) {
  return user_error([&] { write::parsed(write::model(parts)); });
}

std::vector<std::string> ops_of(const File& file) {
  std::vector<std::string> ops;
  for (const Node& node : file.nodes) ops.push_back(node.op);
  return ops;
}

TEST(OnnxFunctions, AreInlinedWithNamesOfTheirOwn) {
  const Message twice =
      write::function({.name = "Twice",
                       .inputs = {"a"},
                       .outputs = {"b"},
                       .nodes = {write::node("Relu", {"a"}, {"t"}, {}, "first"), write::node("Tanh", {"t"}, {"b"})}});
  const File file = write::parsed(write::model(
      {.nodes = {write::call("Twice", {"x"}, {"t"}, {}, "one"), write::call("Twice", {"t"}, {"y"}, {}, "one")},
       .inputs = {write::value("x", {1})},
       .outputs = {write::value("y", {1})},
       .functions = {twice}}));
  EXPECT_EQ(ops_of(file), (std::vector<std::string>{"Relu", "Tanh", "Relu", "Tanh"}));
  EXPECT_EQ(file.nodes[0].inputs.at(0), "x");
  EXPECT_EQ(file.nodes[0].name, "one/first");
  EXPECT_EQ(file.nodes[0].outputs, file.nodes[1].inputs);
  EXPECT_EQ(file.nodes[1].outputs.at(0), "t");
  EXPECT_EQ(file.nodes[2].inputs.at(0), "t");
  EXPECT_EQ(file.nodes[2].outputs, file.nodes[3].inputs);
  EXPECT_NE(file.nodes[2].outputs, file.nodes[0].outputs);
  EXPECT_EQ(file.nodes[3].outputs.at(0), "y");
}

TEST(OnnxFunctions, AttributesComeFromTheCallTheDefaultOrNotAtAll) {
  const Message function =
      write::function({.name = "F",
                       .inputs = {"a"},
                       .outputs = {"b"},
                       .nodes = {write::node("Op", {"a"}, {"b"},
                                             {write::reference("given", "p"), write::reference("kept", "q"),
                                              write::reference("gone", "r")})},
                       .attributes = {"p", "r"},
                       .defaults = {write::attribute("q", 5)}});
  const auto node_of = [&](const std::vector<Message>& attributes) {
    return write::parsed(write::model({.nodes = {write::call("F", {"x"}, {"y"}, attributes)},
                                       .inputs = {write::value("x", {1})},
                                       .functions = {function}}))
        .nodes.at(0);
  };
  EXPECT_EQ(node_of({write::attribute("p", 3)}).integer("given", 0), 3);
  EXPECT_EQ(node_of({write::attribute("p", 3)}).integer("kept", 0), 5);
  EXPECT_EQ(node_of({write::attribute("q", 6)}).integer("kept", 0), 6);
  EXPECT_EQ(node_of({}).find("given"), nullptr);
  EXPECT_EQ(node_of({}).find("gone"), nullptr);
}

TEST(OnnxFunctions, NestAndPassAttributesOn) {
  const Message inner =
      write::function({.name = "Inner",
                       .inputs = {"a", "b"},
                       .outputs = {"c"},
                       .nodes = {write::node("Concat", {"a", "b"}, {"c"}, {write::reference("axis", "dim")})}});
  const Message outer =
      write::function({.name = "Outer",
                       .inputs = {"a"},
                       .outputs = {"c", "unused"},
                       .nodes = {write::call("Inner", {"a", "a"}, {"t"}, {write::reference("dim", "d")}),
                                 write::call("Inner", {"t"}, {"c"}, {write::attribute("dim", 9)}),
                                 write::node("Relu", {"a"}, {"unused"})}});
  const File file =
      write::parsed(write::model({.nodes = {write::call("Outer", {"x"}, {"y"}, {write::attribute("d", 2)})},
                                  .inputs = {write::value("x", {1})},
                                  .outputs = {write::value("y", {1})},
                                  .functions = {outer, inner}}));
  EXPECT_EQ(ops_of(file), (std::vector<std::string>{"Concat", "Concat", "Relu"}));
  EXPECT_EQ(file.nodes[0].integer("axis", 0), 2);
  EXPECT_EQ(file.nodes[0].inputs, (std::vector<std::string>{"x", "x"}));
  EXPECT_EQ(file.nodes[1].integer("axis", 0), 9);
  EXPECT_EQ(file.nodes[1].inputs, (std::vector<std::string>{file.nodes[0].outputs.at(0), ""}));
  EXPECT_EQ(file.nodes[1].outputs.at(0), "y");
}

TEST(OnnxFunctions, AnOutputThatIsAnInputIsPassedOn) {
  const Message pass = write::function({.name = "Pass", .inputs = {"a"}, .outputs = {"a"}});
  const File file = write::parsed(write::model({.nodes = {write::call("Pass", {"x"}, {"y"})},
                                                .inputs = {write::value("x", {1})},
                                                .outputs = {write::value("y", {1})},
                                                .functions = {pass}}));
  ASSERT_EQ(ops_of(file), (std::vector<std::string>{"Identity"}));
  EXPECT_EQ(file.nodes[0].inputs.at(0), "x");
  EXPECT_EQ(file.nodes[0].outputs.at(0), "y");
}

TEST(OnnxFunctions, AreToldApartByDomainAndOverload) {
  const auto make = [](std::string domain, std::string op) {
    return write::function({.name = "F",
                            .domain = std::move(domain),
                            .inputs = {"a"},
                            .outputs = {"b"},
                            .nodes = {write::node(op, {"a"}, {"b"})}});
  };
  const File file = write::parsed(write::model(
      {.nodes = {write::call("F", {"x"}, {"a"}, {}, "", "one"), write::call("F", {"x"}, {"b"}, {}, "", "two"),
                 write::call("F", {"x"}, {"c"}, {}, "", "one").text(8, "v2"), write::node("F", {"x"}, {"d"})},
       .inputs = {write::value("x", {1})},
       .functions = {make("one", "Relu"), make("two", "Tanh"), make("one", "Sqrt").text(13, "v2")}}));
  EXPECT_EQ(ops_of(file), (std::vector<std::string>{"Relu", "Tanh", "Sqrt", "F"}));
}

TEST(OnnxFunctions, NodesOfOtherDomainsStay) {
  const File file = write::parsed(write::model(
      {.nodes = {write::call("FusedThing", {"x"}, {"y"}, {}, "", "com.vendor")}, .inputs = {write::value("x", {1})}}));
  EXPECT_EQ(file.nodes.at(0).domain, "com.vendor");
  EXPECT_EQ(file.nodes.at(0).op, "FusedThing");
}

// A function F with these nodes, called once.
std::string function_error(std::vector<Message> nodes, std::vector<std::string> inputs = {"x"},
                           std::vector<std::string> outputs = {"y"}) {
  return parse_error_of(
      {.nodes = {write::call("F", inputs, outputs, {}, "the call")},
       .inputs = {write::value("x", {1})},
       .functions = {write::function({.name = "F", .inputs = {"a"}, .outputs = {"b"}, .nodes = std::move(nodes)})}});
}

TEST(OnnxFunctions, WrongOnesAreRefused) {
  EXPECT_TRUE(says(function_error({write::call("F", {"a"}, {"b"})}), {"F calls itself", "recursion"}));
  EXPECT_TRUE(says(function_error({write::node("Relu", {"z"}, {"b"})}), {"function F", "Relu 'b'", "'z'"}));
  EXPECT_TRUE(says(function_error({}), {"'the call'", "F does not make its output 'b'"}));
  EXPECT_TRUE(says(function_error({write::node("Relu", {"a"}, {"b"}), write::node("Relu", {"a"}, {"b"})}),
                   {"F makes value 'b' twice"}));
  EXPECT_TRUE(says(function_error({write::node("Relu", {"a"}, {"a"})}), {"F makes value 'a' twice"}));
  EXPECT_TRUE(
      says(function_error({write::node("Relu", {"a"}, {"b"})}, {"x", "x"}), {"'the call'", "2 inputs and 1 outputs"}));
  EXPECT_TRUE(says(function_error({write::node("Relu", {"a"}, {"b"})}, {"x"}, {"y", "z"}), {"1 inputs and 2 outputs"}));
  const Message function = write::function({.name = "F", .outputs = {"b"}});
  EXPECT_TRUE(says(parse_error_of({.functions = {function, function}}), {"F is defined twice"}));
  const Message old = write::function(
      {.name = "F", .inputs = {"a"}, .outputs = {"b"}, .nodes = {write::node("Relu", {"a"}, {"b"})}, .opset = 9});
  EXPECT_TRUE(
      says(parse_error_of(
               {.nodes = {write::call("F", {"x"}, {"y"})}, .inputs = {write::value("x", {1})}, .functions = {old}}),
           {"opset 9"}));
}

// Functions f0 to f<depth>, each calling the next `calls` times.
write::ModelParts tower(int depth, int calls) {
  write::ModelParts parts{.nodes = {write::call("f0", {"x"}, {"y"})}, .inputs = {write::value("x", {1})}};
  for (int level = 0; level <= depth; ++level) {
    std::vector<Message> nodes;
    std::string value = "a";
    for (int call = 0; call < calls; ++call) {
      const std::string next = call + 1 == calls ? "b" : "t" + std::to_string(call);
      nodes.push_back(level == depth ? write::node("Relu", {value}, {next})
                                     : write::call("f" + std::to_string(level + 1), {value}, {next}));
      value = next;
    }
    parts.functions.push_back(
        write::function({.name = "f" + std::to_string(level), .inputs = {"a"}, .outputs = {"b"}, .nodes = nodes}));
  }
  return parts;
}

TEST(OnnxFunctions, CannotMultiplyWithoutBound) {
  EXPECT_EQ(write::parsed(write::model(tower(7, 2))).nodes.size(), 256u);
  EXPECT_TRUE(says(parse_error_of(tower(40, 2)), {"much larger than the file", "inlined"}));
  EXPECT_EQ(write::parsed(write::model(tower(60, 1))).nodes.size(), 1u);
  EXPECT_TRUE(says(parse_error_of(tower(100, 1)), {"nested more than 64 deep"}));
}

// Many copies of one large attribute are memory too.
TEST(OnnxFunctions, CannotMultiplyAttributes) {
  write::ModelParts parts = tower(12, 2);
  parts.functions.back() = write::function(
      {.name = "f12",
       .inputs = {"a"},
       .outputs = {"b"},
       .nodes = {write::node("Op", {"a"}, {"b"}, {write::attribute("v", std::vector<std::int64_t>(10000, 1))})}});
  EXPECT_TRUE(says(parse_error_of(parts), {"much larger than the file"}));
}

}  // namespace
}  // namespace overtake::onnx
