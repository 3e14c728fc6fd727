// The parts of a user error's text.

#include <gtest/gtest.h>

#include "base/error.h"

namespace overtake::tests {
namespace {

struct Parts {
  std::string field, value, remedy;
  bool operator==(const Parts&) const = default;
};
void PrintTo(const Parts& p, std::ostream* out) { *out << p.field << " | " << p.value << " | " << p.remedy; }

Parts parts_of(const std::string& text) {
  const UserError e(text);
  EXPECT_EQ(e.what(), text);
  return {e.field(), e.value(), e.remedy()};
}

TEST(UserErrors, FieldAndValueAreWhatTheTextBeginsWith) {
  EXPECT_EQ(parts_of("`lr_schedule x`: no such schedule: known are cosine, step; give one of them"),
            (Parts{"lr_schedule", "x", "give one of them"}));
  EXPECT_EQ(parts_of("`nesterov`: it needs `momentum` above 0"), (Parts{"nesterov", "", ""}));
  EXPECT_EQ(parts_of("`resume my runs/net`: another model"), (Parts{"resume", "my runs/net", ""}));
  EXPECT_EQ(parts_of("`freeze `: it is empty"), (Parts{"freeze", "", ""}));
}

TEST(UserErrors, OtherPlacesHaveNoField) {
  EXPECT_EQ(parts_of("layer fc1: it needs `out` above 0; give another"), (Parts{"", "", "give another"}));
  EXPECT_EQ(parts_of("`never closed: x"), (Parts{"", "", ""}));
  EXPECT_EQ(parts_of("`"), (Parts{"", "", ""}));
  EXPECT_EQ(parts_of("``"), (Parts{"", "", ""}));
  EXPECT_EQ(parts_of(""), (Parts{"", "", ""}));
}

TEST(UserErrors, TheRemedyComesLast) {
  EXPECT_EQ(parts_of("file: two faults: a; b; mend both").remedy, "mend both");
  EXPECT_EQ(parts_of("file: ends early; ").remedy, "");
  EXPECT_EQ(parts_of("file: a;b").remedy, "");
}

TEST(UserErrors, FailUserMakesThem) {
  try {
    fail_user("`batch {}`: it must be at least {}; give more", 0, 1);
    FAIL() << "nothing was thrown";
  } catch (const UserError& e) {
    const UserError copy = e;
    EXPECT_EQ((Parts{copy.field(), copy.value(), copy.remedy()}), (Parts{"batch", "0", "give more"}));
  }
}

}  // namespace
}  // namespace overtake::tests
