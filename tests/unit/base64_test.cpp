#include "base/base64.h"

#include <gtest/gtest.h>

namespace overtake {
namespace {

// The examples of RFC 4648.
TEST(Base64, IsThatOfTheStandard) {
  const char* const pairs[][2] = {{"", ""},
                                  {"f", "Zg=="},
                                  {"fo", "Zm8="},
                                  {"foo", "Zm9v"},
                                  {"foob", "Zm9vYg=="},
                                  {"fooba", "Zm9vYmE="},
                                  {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : pairs) {
    EXPECT_EQ(to_base64(bytes), text);
    EXPECT_EQ(from_base64(text), bytes);
  }
  EXPECT_EQ(to_base64("\xfb\xff\xbf"), "+/+/");
}

TEST(Base64, BringsAllBytesBack) {
  std::string bytes;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
    bytes += static_cast<char>(i * 37 % 256);
  }
}

TEST(Base64, RefusesWhatIsNone) {
  for (const char* text : {"Zg", "Zg=", "Z===", "====", "Zm 9", "Zg==Zg==", "Zm9v\n", "Zm-_"}) {
    EXPECT_EQ(from_base64(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace overtake
