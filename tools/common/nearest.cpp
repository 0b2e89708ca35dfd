// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace pcilend {
namespace {

constexpr size_t kFewEdits = 2;

// Levenshtein distance.
size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::optional<std::string_view> nearest(std::string_view word,
                                        std::span<const std::string_view> known) {
  std::optional<std::string_view> best;
  size_t fewest = kFewEdits + 1;
  for (const auto candidate : known) {
    const size_t longer = std::max(word.size(), candidate.size());
    const size_t shorter = std::min(word.size(), candidate.size());
    if (longer - shorter >= fewest) continue;
    if (const size_t n = edits(word, candidate); n < fewest && n < candidate.size()) {
      best = candidate;
      fewest = n;
    }
  }
  return best;
}

}  // namespace pcilend
