// SPDX-License-Identifier: GPL-2.0-or-later
#include "models.h"

#include "amd_model.h"
#include "switchtec_model.h"

namespace pcilend::fabric {

std::string_view to_string(Product product) {
  return product == Product::Switchtec ? "switchtec" : "amd";
}

Result<Product> parse_product(std::string_view text) {
  for (const Product product : {Product::Amd, Product::Switchtec})
    if (text == to_string(product)) return product;
  return fail(ErrorClass::Usage, "no adapter '{}': there are amd and switchtec", text);
}

WindowSizes default_windows(Product product) {
  // The first half of a Switchtec's BAR2 is its look-up table's.
  if (product == Product::Switchtec) return {64ull << 20, 64ull << 30};
  return {64ull << 30, 16ull << 30};
}

std::array<std::unique_ptr<AdapterModel>, 2> make_models(Product product,
                                                         const WindowSizes& windows) {
  return product == Product::Switchtec ? SwitchtecModel::pair(windows) : AmdModel::pair(windows);
}

}  // namespace pcilend::fabric
