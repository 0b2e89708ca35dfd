// SPDX-License-Identifier: GPL-2.0-or-later
// Kinds of functions, as pcilend_mdev.ko has them: parents of mediated devices that are any
// function of the kind.
#pragma once

#include <string>
#include <vector>

#include "pcilend/environment.h"
#include "pcilend/ids.h"

namespace pcilend::policy {

struct PresentKind {
  std::string name;        // "fast"
  std::string type;        // of mediated devices: "pcilend_mdev-fast"
  PciAddress address;      // of the PCI device that is their parent
  std::string matches;     // "device=144d::0108 label=fast"
  uint32_t available = 0;  // functions that can be borrowed as one of the kind
  uint32_t devices = 0;    // mediated devices of it

  // As the kernel writes and reads it.
  [[nodiscard]] std::string text() const { return name + " " + matches; }
};

// By address. Unreachable, with the cure, if pcilend_mdev.ko is not loaded.
Result<std::vector<PresentKind>> present_kinds(const Environment& environment);

// Is it the name of a kind, or of another type, that is always there?
bool is_fixed_kind(const std::string& name);

// Makes a kind of a text such as "fast device=144d::0108".
Result<> make_kind(const Environment& environment, const std::string& text);

// State, with the cure, while mediated devices of it exist.
Result<> end_kind(const Environment& environment, const PresentKind& kind);

}  // namespace pcilend::policy
