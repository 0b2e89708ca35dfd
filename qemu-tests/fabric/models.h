// SPDX-License-Identifier: GPL-2.0-or-later
// The products that an adapter can be.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "adapter_model.h"
#include "pcilend/result.h"

namespace pcilend::fabric {

enum class Product { Amd, Switchtec };

std::string_view to_string(Product product);
Result<Product> parse_product(std::string_view text);

// BAR2 and BAR4 where nothing else is asked for: SeaBIOS places these for several adapters.
WindowSizes default_windows(Product product);

// The two ends of one link, the primary side first.
std::array<std::unique_ptr<AdapterModel>, 2> make_models(Product product,
                                                         const WindowSizes& windows);

}  // namespace pcilend::fabric
