#pragma once
// A small linear program: how much time can be saved by running parts of tasks in pairs.

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "base/error.h"

namespace overtake {

// Maximises sum of gain x, A x <= limit, x >= 0 (limit >= 0), by the simplex method; columns have two entries.
class PairProgram {
 public:
  explicit PairProgram(std::vector<double> limits) : limits_(std::move(limits)) {}

  void add(std::size_t row, double rate, std::size_t other_row, double other_rate, double gain) {
    columns_.push_back({row, other_row, rate, other_rate, gain});
  }

  // A price per row; gains are at most the sum of price and limit.
  std::vector<double> prices() const {
    const std::size_t rows = limits_.size(), columns = columns_.size(), width = columns + rows + 1;
    std::vector<std::vector<double>> table(rows + 1, std::vector<double>(width, 0));
    for (std::size_t c = 0; c < columns; ++c) {
      table[columns_[c].row][c] = columns_[c].rate;
      table[columns_[c].other][c] = columns_[c].other_rate;
      table[rows][c] = -columns_[c].gain;
    }
    for (std::size_t r = 0; r < rows; ++r) {
      table[r][columns + r] = 1;
      table[r][width - 1] = limits_[r];
    }
    for (int pivots = 0; pivots < 2000; ++pivots) {
      const auto& costs = table[rows];
      const auto in = static_cast<std::size_t>(std::min_element(costs.begin(), costs.end() - 1) - costs.begin());
      if (costs[in] > -1e-9) break;
      std::size_t out = rows;
      double least = std::numeric_limits<double>::max();
      for (std::size_t r = 0; r < rows; ++r)
        if (table[r][in] > 1e-9 && table[r][width - 1] / table[r][in] < least) {
          least = table[r][width - 1] / table[r][in];
          out = r;
        }
      OVERTAKE_CHECK(out < rows, "gains without end");
      const double pivot = table[out][in];
      for (double& x : table[out]) x /= pivot;
      for (std::size_t r = 0; r <= rows; ++r) {
        const double factor = table[r][in];
        if (r == out || factor == 0) continue;
        for (std::size_t c = 0; c < width; ++c) table[r][c] -= factor * table[out][c];
      }
    }
    std::vector<double> prices(rows);
    for (std::size_t r = 0; r < rows; ++r) prices[r] = std::max(0.0, table[rows][columns + r]);
    // Whatever the simplex left undone, prices that cover every pair bound the gain.
    for (const Column& c : columns_) {
      const double missing = c.gain - prices[c.row] * c.rate - prices[c.other] * c.other_rate;
      if (missing > 0) prices[c.row] += missing / c.rate;
    }
    return prices;
  }

 private:
  struct Column {
    std::size_t row, other;
    double rate, other_rate, gain;
  };
  std::vector<double> limits_;
  std::vector<Column> columns_;
};

}  // namespace overtake
