#include "base/json.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "base/toml.h"

namespace overtake {
namespace {

using nlohmann::json;

std::string nested(std::size_t depth, const std::string& open, const std::string& inner, const std::string& close) {
  std::string text;
  for (std::size_t i = 0; i < depth; ++i) text += open;
  text += inner;
  for (std::size_t i = 0; i < depth; ++i) text += close;
  return text;
}

TEST(Json, DepthIsBounded) {
  EXPECT_EQ(parse_json(nested(kMostJsonDepth, "[", "", "]")).size(), 1u);
  for (const std::size_t depth : {kMostJsonDepth + 1, std::size_t{1'000'000}}) {
    for (const std::string& text :
         {nested(depth, "[", "", "]"), nested(depth, R"({"a":)", "1", "}"), std::string(depth, '[')}) {
      EXPECT_THROW(parse_json(text), json::parse_error) << depth;
      EXPECT_TRUE(parse_json_or_discard(text).is_discarded()) << depth;
    }
  }
  try {
    parse_json(nested(100, "[", "", "]"));
    FAIL();
  } catch (const json::parse_error& error) {
    EXPECT_NE(std::string(error.what()).find("more than 64 levels"), std::string::npos) << error.what();
    EXPECT_EQ(error.byte, kMostJsonDepth);
  }
}

TEST(Json, BracketsInTextsAreNoLevels) {
  const std::string brackets(1000, '[');
  EXPECT_EQ(parse_json("[\"" + brackets + "\"]")[0], brackets);
  EXPECT_EQ(parse_json("[\"\\\"" + brackets + "\"]")[0], "\"" + brackets);
  EXPECT_EQ(parse_json("{\"\\\\\":[], \"" + brackets + "\": 3}")[brackets], 3);
  // Beside one another they are no deeper.
  std::string list = "[0";
  for (int i = 0; i < 1000; ++i) list += ",[{}]";
  EXPECT_EQ(parse_json(list + "]").size(), 1001u);
}

TEST(Json, WhatIsNoJsonIsSaid) {
  for (const char* text : {"", "]", "[", "{\"a\"}", "nul", "[1] 2", "\"\xff\"", "[1e999]"}) {
    EXPECT_THROW(parse_json(text), json::parse_error) << text;
    EXPECT_TRUE(parse_json_or_discard(text).is_discarded()) << text;
  }
}

TEST(Json, NumbersAreNotCutToFit) {
  EXPECT_EQ(checked<std::uint16_t>(json(65535)), 65535);
  EXPECT_EQ(checked<std::vector<std::int64_t>>(json({1, -2})), (std::vector<std::int64_t>{1, -2}));
  EXPECT_EQ(checked<std::string>(json("a")), "a");
  for (const json& value : {json(65536), json(-1), json(1.5), json(1e300), json(true), json("1"), json()})
    EXPECT_THROW(checked<std::uint16_t>(value), json::type_error) << value;
  EXPECT_THROW(checked<std::vector<std::uint32_t>>(json({1, 2.5})), json::type_error);
  EXPECT_THROW(checked<std::vector<std::uint32_t>>(json(3)), json::type_error);
}

// The error of a TOML text; "" for a good one.
std::string toml_error(const std::string& text) {
  try {
    parse_toml(text, "a.toml", "look again");
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Toml, DepthIsBounded) {
  EXPECT_EQ(toml_error("a = " + nested(30, "[", "1", "]")), "");
  const std::size_t deep = 200'000;
  for (const std::string& text :
       {"\na = " + nested(deep, "[", "1", "]"), "\na = " + nested(deep, "{a=", "1", "}"),
        "\na" + nested(deep, ".a", "", "") + " = 1", "\n[a" + nested(deep, ". a", "", "") + "]",
        "\n\"a\"" + nested(deep, ".\"a\"", "", "") + " = 1"}) {
    const std::string error = toml_error(text);
    EXPECT_EQ(error, "a.toml:2: not TOML that can be read: nested too deeply; look again") << text.substr(0, 20);
  }
}

// The library asks of them whether they are white space, and has no answer.
TEST(Toml, LettersBeyondAsciiAreForTexts) {
  EXPECT_EQ(toml_error("\xef\xbb\xbf"
                       "a = \"größer\" # größer\nb = \"\"\"é\n\"\"\"\nc = '''é\\\n'''"),
            "");
  EXPECT_EQ(toml_error("a = 1\né = 1"),
            "a.toml:2: not TOML that can be read: a letter beyond ASCII outside quotes; look again");
  for (const char* text : {"a = \"\"\"\\\n é\"\"\"", "a = \"\"\"\\é\"\"\"", "a = \"\"\"é\\\n b\"\"\""})
    EXPECT_NE(toml_error(text).find("of several lines"), std::string::npos) << text;
  EXPECT_EQ(toml_error("\"é\" = ['é',\n  \"é\", { \"é\" = \"é\", \"ö\" = 1 }]\n[\"ü\"]"), "");
  for (const char* text : {"a = 70f\"é\"", "a = 1 'é'", "a = \"x\"\"é\"", "a = .\"é\"", "a = \"x\" # é\nb = {}\"é\""})
    EXPECT_NE(toml_error(text).find("in quotes where no value and no key begins"), std::string::npos) << text;
}

TEST(Toml, DotsAndBracketsElsewhereAreNoLevels) {
  const std::string many = nested(100, "[.", "", "");
  EXPECT_EQ(toml_error("a = \"" + many + "\"\nb = '" + many + "' # " + many + "\nc = \"\"\"\n\\\"" + many + "\n\"\"\""),
            "");
  std::string numbers = "a = [1.5";
  for (int i = 0; i < 1000; ++i) numbers += ", 1.5";
  EXPECT_EQ(toml_error(numbers + "]"), "");
}

}  // namespace
}  // namespace overtake
