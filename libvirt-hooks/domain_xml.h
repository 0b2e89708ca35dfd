// SPDX-License-Identifier: GPL-2.0-or-later
// What the hook needs of a libvirt domain.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pcilend/ids.h"
#include "pcilend/model.h"

namespace pcilend {

// Any function that has all of what is given here; that is one thing at least.
struct Choice {
  Uuid mdev;               // of the <hostdev> that it is for
  std::string class_code;  // its first digits, as in `lspci -n`: "0108", "02"
  std::optional<uint16_t> vendor;
  std::optional<uint16_t> device;
  std::string label;

  [[nodiscard]] bool matches(const Function& function) const;
  // "class 0108, vendor 1b36".
  [[nodiscard]] std::string text() const;
};

// A domain's metadata in the namespace kOptionsNamespace.
struct DomainOptions {
  std::chrono::seconds wait{0};  // for functions that can't be borrowed yet
  std::vector<Choice> choices;
};
// libvirt does nothing else with the domain while its hook runs, and who asks for it waits, too.
inline constexpr unsigned kWaitSecondsMax = 60;
inline constexpr std::string_view kOptionsNamespace = "urn:pcilend:libvirt:1";

struct Domain {
  std::string name;
  Uuid uuid;
  // UUIDs of its <hostdev type='mdev'> devices, each once, in the order of the document.
  std::vector<Uuid> mdevs;
  // Functions that its <hostdev type='pci'> devices are when they are borrowed, in the same way.
  std::vector<FunctionId> functions;
  // An error only if there are options that can't be followed: who starts a domain must know.
  Result<DomainOptions> options;
};

// libvirt takes no larger domain XML over its protocol (REMOTE_STRING_MAX in remote_protocol.x).
inline constexpr size_t kDomainXmlBytesMax = 4u << 20;

// Reads domain XML (https://libvirt.org/formatdomain.html). Document type declarations, and with
// them entities, are refused; nothing is fetched.
Result<Domain> parse_domain_xml(std::string_view xml);

}  // namespace pcilend
