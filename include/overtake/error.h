#pragma once
// Two kinds of error: the user's (exit code 2, says what to do) and ours (a bug, says so).

#include <stdexcept>

namespace overtake {

// Something the user gave is wrong. The text reads "<where>: <what>: <values>; <what to do>".
class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A broken promise inside Overtake itself.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace overtake
