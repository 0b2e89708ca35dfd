// SPDX-License-Identifier: GPL-2.0-or-later
// Pieces that the text of several answers is made of.
#pragma once

#include <string>
#include <vector>

#include "pcilend/model.h"
#include "pcilend/pci_names.h"

namespace pcilend {

// "16 KiB" where that says it all, else bytes.
std::string size_text(uint64_t bytes);

// "12 s", of milliseconds; rounded up.
std::string seconds_text(uint32_t milliseconds);

// Columns aligned by blanks; the last one is not padded.
std::string align(const std::vector<std::vector<std::string>>& rows);

// "40002, 40003": those whose BARs it reaches by DMA.
std::string reaches_text(const Function& function);

// "40001: Non-Volatile memory controller: Red Hat, Inc. QEMU NVM Express Controller"
std::string function_title(const Function& function, const PciNames& names);

// All that a listing says of a function; without a line break.
std::string function_line(const Function& function, const PciNames& names, uint32_t this_node);

// "this host" or "node 8".
std::string node_text(uint32_t node, uint32_t this_node);

// "link 0 (0000:00:04.0)"
std::string link_title(const Link& link);

// Of a link that is not up: "link 0 (0000:00:04.0) is down: the peer is off, ..."
std::string link_trouble(const Link& link);

}  // namespace pcilend
