#pragma once
// The user error that something ends in.

#include <gtest/gtest.h>

#include <functional>

#include "overtake/error.h"

namespace overtake {

inline UserError caught(const std::function<void()>& wrong) {
  try {
    wrong();
  } catch (const UserError& e) {
    EXPECT_NE(e.remedy(), "") << e.what();
    return e;
  }
  ADD_FAILURE() << "nothing was thrown";
  return UserError("");
}

}  // namespace overtake
