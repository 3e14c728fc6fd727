#pragma once
// The end of what a process said, however much that is.

#include <deque>
#include <string>
#include <string_view>

namespace overtake {

class LastLines {
 public:
  explicit LastLines(std::size_t lines = 20, std::size_t length = 1000) : most_lines_(lines), longest_(length) {}

  // Lines end where they do on a terminal: what a progress line is written over with goes on as the same line.
  void add(std::string_view text) {
    for (const char c : text) {
      if (c == '\n') {
        end_line();
      } else if (c == '\r') {
        is_written_over_ = true;
      } else {
        if (is_written_over_) current_.clear();
        is_written_over_ = false;
        if (current_.size() < longest_) current_ += c;
      }
    }
  }

  // Without empty ones; the last need not have ended.
  std::deque<std::string> lines() const {
    LastLines all = *this;
    all.end_line();
    return all.lines_;
  }

 private:
  void end_line() {
    if (!current_.empty()) lines_.push_back(current_);
    if (lines_.size() > most_lines_) lines_.pop_front();
    current_.clear();
    is_written_over_ = false;
  }
  std::size_t most_lines_, longest_;
  std::deque<std::string> lines_;
  std::string current_;
  bool is_written_over_ = false;
};

}  // namespace overtake
