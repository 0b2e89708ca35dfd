// SPDX-License-Identifier: GPL-2.0-or-later
// What the hook needs of a libvirt domain.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pcilend/ids.h"

namespace pcilend {

struct Domain {
  std::string name;
  Uuid uuid;
  // Functions passed to it: UUIDs of its <hostdev type='mdev'> devices that name functions, each
  // once, in the order of the document.
  std::vector<Uuid> functions;
};

// libvirt takes no larger domain XML over its protocol (REMOTE_STRING_MAX in remote_protocol.x).
inline constexpr size_t kDomainXmlBytesMax = 4u << 20;

// Reads domain XML (https://libvirt.org/formatdomain.html). Document type declarations, and with
// them entities, are refused; nothing is fetched.
Result<Domain> parse_domain_xml(std::string_view xml);

}  // namespace pcilend
