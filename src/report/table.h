#pragma once
// Text tables that fit a terminal.

#include <string>
#include <vector>

namespace overtake {

// Columns are as wide as their widest cell; those that hold numbers only are aligned to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}
  void add(std::vector<std::string> row);
  std::string text() const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace overtake
