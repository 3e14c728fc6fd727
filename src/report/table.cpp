#include "report/table.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace overtake {
namespace {

bool starts_like_number(const std::string& cell) {
  return cell.empty() || std::isdigit(static_cast<unsigned char>(cell[0])) != 0 || cell[0] == '-' || cell[0] == '+';
}

}  // namespace

void Table::add(std::vector<std::string> row) {
  OVERTAKE_CHECK(row.size() == header_.size(), "a row of {} cells in a table of {} columns", row.size(),
                 header_.size());
  rows_.push_back(std::move(row));
}

std::string Table::text() const {
  std::vector<std::size_t> width(header_.size());
  std::vector<bool> to_right(header_.size(), true);
  for (std::size_t c = 0; c < header_.size(); ++c) {
    width[c] = header_[c].size();
    for (const auto& row : rows_) {
      width[c] = std::max(width[c], row[c].size());
      to_right[c] = to_right[c] && starts_like_number(row[c]);
    }
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string out;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const bool is_last = c + 1 == cells.size();
      if (to_right[c])
        out += fmt::format("{:>{}}", cells[c], width[c]);
      else
        out += is_last ? cells[c] : fmt::format("{:<{}}", cells[c], width[c]);
      if (!is_last) out += "  ";
    }
    return out + "\n";
  };
  std::string out = line(header_);
  for (const auto& row : rows_) out += line(row);
  return out;
}

}  // namespace overtake
