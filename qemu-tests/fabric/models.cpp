// SPDX-License-Identifier: GPL-2.0-or-later
#include "models.h"

#include "amd_model.h"

namespace pcilend::fabric {

std::string_view to_string(Product /*product*/) {
  return "amd";
}

Result<Product> parse_product(std::string_view text) {
  if (text == to_string(Product::Amd)) return Product::Amd;
  return fail(ErrorClass::Usage, "no adapter '{}': amd", text);
}

WindowSizes default_windows(Product /*product*/) {
  return {64ull << 30, 16ull << 30};
}

std::array<std::unique_ptr<AdapterModel>, 2> make_models(Product /*product*/,
                                                         const WindowSizes& windows) {
  return AmdModel::pair(windows);
}

}  // namespace pcilend::fabric
