// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/policy/local.h"

#include <algorithm>
#include <charconv>

#include "pcilend/identity.h"

namespace pcilend::policy {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDevices = "/sys/bus/pci/devices";
// Kinds and borrowed functions are in those from there on.
constexpr uint32_t kDomainEnd = PCILEND_PCI_DOMAIN_FIRST;
constexpr size_t kHeaderType = 0x0e;
constexpr size_t kExtended = 0x100;  // first extended capability
constexpr uint16_t kSerialNumber = 3;

std::string attribute_path(const PciAddress& address, std::string_view name) {
  return fmt::format("{}/{}/{}", kDevices, to_string(address), name);
}

std::optional<uint32_t> read_hex(const Environment& environment, const PciAddress& address,
                                 std::string_view name) {
  const auto text = environment.read(attribute_path(address, name));
  if (!text || !text->starts_with("0x")) return std::nullopt;
  uint32_t value = 0;
  const auto [end, error] =
      std::from_chars(text->data() + 2, text->data() + text->size(), value, 16);
  if (error != std::errc()) return std::nullopt;
  return value;
}

uint32_t dword(const std::string& config, size_t at) {
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<uint8_t>(config[at + i]);
  return value;
}

uint64_t serial_number(const std::string& config) {
  size_t at = kExtended;
  // Each capability takes at least 8 bytes: no chain is longer, unless it is a loop.
  for (size_t left = config.size() / 8; left > 0 && at >= kExtended && at + 12 <= config.size();
       --left) {
    const uint32_t header = dword(config, at);
    if (header == 0 || header == UINT32_MAX) return 0;
    if ((header & 0xffff) == kSerialNumber)
      return static_cast<uint64_t>(dword(config, at + 8)) << 32 | dword(config, at + 4);
    at = header >> 20 & ~3u;
  }
  return 0;
}

// Is `config` all of its configuration space? Only root reads behind the header.
bool is_whole(const Environment& environment, const PciAddress& address,
              const std::string& config) {
  std::error_code error;
  const auto size = fs::file_size(environment.path(attribute_path(address, "config")), error);
  return !error && config.size() >= size;
}

std::optional<PciAddress> physical_function(const Environment& environment,
                                            const PciAddress& address) {
  std::error_code error;
  const fs::path target =
      fs::read_symlink(environment.path(attribute_path(address, "physfn")), error);
  if (error) return std::nullopt;
  const auto physical = parse_pci_address(target.filename().native());
  if (!physical) return std::nullopt;
  return *physical;
}

// Which of its physical function's virtual functions it is.
std::optional<unsigned> virtual_index(const Environment& environment, const PciAddress& physical,
                                      const PciAddress& address) {
  std::error_code error;
  for (fs::directory_iterator it(environment.path(attribute_path(physical, "")), error), end;
       !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    std::error_code ignored;
    unsigned index = 0;
    if (name.starts_with("virtfn") &&
        fs::read_symlink(it->path(), ignored).filename() == to_string(address) &&
        std::from_chars(name.data() + 6, name.data() + name.size(), index).ec == std::errc())
      return index;
  }
  return std::nullopt;
}

// `own`: its configuration space as far as it can be read. Each read wakes a device that sleeps.
std::optional<Uuid> uuid_of(const Environment& environment, const LocalFunction& f, uint32_t node,
                            const std::string& own) {
  const auto physical = physical_function(environment, f.address);
  const auto config =
      physical ? environment.read(attribute_path(*physical, "config")) : Result<std::string>(own);
  const auto subsystem_vendor = read_hex(environment, f.address, "subsystem_vendor");
  const auto subsystem_device = read_hex(environment, f.address, "subsystem_device");
  if (!config || !subsystem_vendor || !subsystem_device ||
      !is_whole(environment, physical.value_or(f.address), *config))
    return std::nullopt;
  pcilend_identity identity{};
  identity.vendor = f.vendor;
  identity.device = f.device;
  identity.subsystem_vendor = static_cast<uint16_t>(*subsystem_vendor);
  identity.subsystem_device = static_cast<uint16_t>(*subsystem_device);
  identity.class_code = f.class_code;
  identity.lender = node;
  identity.serial = serial_number(*config);
  identity.function = f.address.function;
  identity.segment = static_cast<uint16_t>(f.address.domain);
  identity.bus = f.address.bus;
  identity.devfn = static_cast<uint8_t>(f.address.device << 3 | f.address.function);
  if (physical) {
    const auto index = virtual_index(environment, *physical, f.address);
    if (!index) return std::nullopt;
    identity.function = static_cast<uint16_t>(256 + *index);
  }
  Uuid uuid;
  pcilend_uuid_make(uuid.bytes.data(), &identity);
  return uuid;
}

std::optional<LocalFunction> read_function(const Environment& environment,
                                           const PciAddress& address, uint32_t node) {
  const auto vendor = read_hex(environment, address, "vendor");
  const auto device = read_hex(environment, address, "device");
  const auto class_code = read_hex(environment, address, "class");
  const auto config = environment.read(attribute_path(address, "config"));
  if (!vendor || !device || !class_code || !config || config->size() <= kHeaderType)
    return std::nullopt;
  LocalFunction f;
  f.address = address;
  f.vendor = static_cast<uint16_t>(*vendor);
  f.device = static_cast<uint16_t>(*device);
  f.class_code = *class_code;
  f.bridge = *class_code >> 16 == 0x06 || ((*config)[kHeaderType] & 0x7f) != 0;
  f.uuid = uuid_of(environment, f, node, *config);
  return f;
}

}  // namespace

std::optional<LocalFunction> local_function(const Environment& environment,
                                            const PciAddress& address, uint32_t node) {
  if (address.domain >= kDomainEnd) return std::nullopt;
  return read_function(environment, address, node);
}

Result<std::vector<LocalFunction>> local_functions(const Environment& environment, uint32_t node) {
  std::vector<LocalFunction> functions;
  std::error_code error;
  for (fs::directory_iterator it(environment.path(kDevices), error), end; !error && it != end;
       it.increment(error)) {
    const auto address = parse_pci_address(it->path().filename().native());
    if (!address || address->domain >= kDomainEnd) continue;
    if (auto f = read_function(environment, *address, node)) functions.push_back(std::move(*f));
  }
  if (error) return fail_errno(kDevices, error.value());
  std::sort(functions.begin(), functions.end(), [](const auto& a, const auto& b) {
    return to_string(a.address) < to_string(b.address);
  });
  return functions;
}

}  // namespace pcilend::policy
