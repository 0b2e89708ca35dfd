// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/policy/filter.h"

extern "C" {
#include <pci/pci.h>
}

namespace pcilend::policy {
namespace {

using Parse = char*(pci_filter*, char*);

// libpci cuts the text up: it gets a copy. Its complaint, or NULL.
const char* parse(Parse* parser, pci_filter* filter, std::string text) {
  return parser(filter, text.data());
}

Result<> check(Parse* parser, const std::string& text, std::string_view syntax) {
  pci_filter filter{};
  pci_filter_init(nullptr, &filter);
  if (text.empty() || text.find('\0') != std::string::npos)
    return fail(ErrorClass::Usage, "nothing to match: write {}, as lspci does", syntax);
  if (const char* const complaint = parse(parser, &filter, text))
    return fail(ErrorClass::Usage, "'{}': {}: write {}, as lspci does", text, complaint, syntax);
  return {};
}

}  // namespace

Result<> check_slot(const std::string& slot) {
  return check(pci_filter_parse_slot, slot, "[[[[DOMAIN]:]BUS]:][DEVICE][.[FUNCTION]]");
}

Result<> check_device(const std::string& device) {
  return check(pci_filter_parse_id, device, "[VENDOR]:[DEVICE][:CLASS[:INTERFACE]]");
}

bool matches(const Pattern& pattern, const LocalFunction& function) {
  pci_filter filter{};
  pci_filter_init(nullptr, &filter);
  if (!pattern.slot.empty()) parse(pci_filter_parse_slot, &filter, pattern.slot);
  if (!pattern.device.empty()) parse(pci_filter_parse_id, &filter, pattern.device);
  // All that a filter looks at is known, so libpci looks at no hardware.
  pci_dev device{};
  device.domain = static_cast<int>(function.address.domain);
  device.domain_16 = static_cast<u16>(function.address.domain);
  device.bus = function.address.bus;
  device.dev = function.address.device;
  device.func = function.address.function;
  device.vendor_id = function.vendor;
  device.device_id = function.device;
  device.device_class = static_cast<u16>(function.class_code >> 8);
  device.prog_if = static_cast<u8>(function.class_code);
  device.known_fields = PCI_FILL_IDENT | PCI_FILL_CLASS | PCI_FILL_CLASS_EXT;
  return pci_filter_match(&filter, &device) != 0;
}

std::string to_string(const Pattern& pattern) {
  std::string text;
  if (!pattern.slot.empty()) text += fmt::format("-s {}", pattern.slot);
  if (!pattern.device.empty())
    text += fmt::format("{}-d {}", text.empty() ? "" : " ", pattern.device);
  return text;
}

}  // namespace pcilend::policy
