// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/directory.h"

#include <algorithm>

namespace pcilend {

namespace fs = std::filesystem;

std::vector<fs::path> entries(const fs::path& directory) {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    found.push_back(it->path());
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace pcilend
