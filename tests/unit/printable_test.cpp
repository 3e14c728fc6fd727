#include "base/printable.h"

#include <gtest/gtest.h>

namespace overtake {
namespace {

TEST(Printable, KeepsLettersOfAllLanguages) {
  for (const char* text : {"", "conv1.weight", "größer 𝛼 模型 🚂", "two\nlines\tand a tab"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, ShowsWhatWouldMoveACursorOrTurnText) {
  EXPECT_EQ(printable("a\x1b[31mb"), "a\\x1b[31mb");
  EXPECT_EQ(printable(std::string_view("a\0b\r\x7f", 5)), "a\\x00b\\x0d\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m")
      << "U+009B begins a sequence as well";
  EXPECT_EQ(printable("a\xe2\x80\xae"
                      "b"),
            "a\\xe2\\x80\\xae"
            "b")
      << "U+202E turns the direction";
}

TEST(Printable, ShowsWhatIsNoUtf8) {
  EXPECT_EQ(printable("a\xff"
                      "b"),
            "a\\xffb");
  EXPECT_EQ(printable("\xc0\x80"), "\\xc0\\x80") << "a long form of 0";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a pair of UTF-16";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond the last letter";
  EXPECT_EQ(printable("\xe2\x82"), "\\xe2\\x82") << "cut short";
  EXPECT_FALSE(is_utf8("\xe2\x82"));
  EXPECT_TRUE(is_utf8("\xe2\x82\xac"));
}

TEST(Printable, NamesAreOneShortLine) {
  EXPECT_EQ(printable_name("a\nb"), "a\\x0ab");
  EXPECT_EQ(printable_name(std::string(160, 'a')), std::string(160, 'a'));
  EXPECT_EQ(printable_name(std::string(161, 'a')), std::string(160, 'a') + "...");
  EXPECT_EQ(printable_name(std::string(159, 'a') + "\xe2\x82\xac"), std::string(159, 'a') + "...") << "no half letters";
}

}  // namespace
}  // namespace overtake
