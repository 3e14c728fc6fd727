#pragma once
// Two kinds of error: the user's (says what to do) and ours (a bug, says so).

#include <stdexcept>
#include <string>
#include <utility>

namespace overtake {

// Something the user gave is wrong. The text reads "<where>: <what>: <values>; <what to do>". Where it is about one
// field of what was given, it begins with the field's name and value in backticks: "`lr_schedule x`: ...".
class UserError : public std::runtime_error {
 public:
  explicit UserError(const std::string& text);

  // Parts of the text, each empty where it has none such.
  const std::string& field() const noexcept { return field_; }    // "lr_schedule"
  const std::string& value() const noexcept { return value_; }    // "x", as it was given
  const std::string& remedy() const noexcept { return remedy_; }  // what to do

 private:
  std::string field_, value_, remedy_;
};

// A broken promise inside Overtake itself.
class InternalError : public std::logic_error {
 public:
  explicit InternalError(const std::string& text) : InternalError(text, text) {}
  InternalError(const std::string& text, std::string reason) : std::logic_error(text), reason_(std::move(reason)) {}

  // What is broken, without where that was found and what to do about it.
  const std::string& reason() const noexcept { return reason_; }

 private:
  std::string reason_;
};

}  // namespace overtake
