// SPDX-License-Identifier: GPL-2.0-or-later
// What is made of a lease of which others hold a part, too.
#pragma once

#include <memory>

#include "pcilend/nvme/device.h"

namespace pcilend::nvme {

// Unsupported if it is no NVMe controller.
Result<std::unique_ptr<Device>> make_leased(std::shared_ptr<Lease> lease, bool near = true);

// Memory of this process, mapped for the function; with `near` beside it, where that is best.
// Stores there are gathered.
Result<std::unique_ptr<Memory>> allocate_leased(const Lease& lease, size_t bytes,
                                                const Access& access, bool near);

// What is behind a dma-buf, for the function.
Result<std::unique_ptr<Reach>> reach_leased(const Lease& lease, int dma_buf);

Result<> check_class(const Lease& lease);

// Page of BAR 0 where doorbells begin (Base 3.1.3).
inline constexpr uint64_t kDoorbellPage = 0x1000;

}  // namespace pcilend::nvme
