// SPDX-License-Identifier: GPL-2.0-or-later
#include "config_space.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/pci_regs.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

namespace pcilend {
namespace {

using Names = std::pair<uint16_t, std::string_view>;

constexpr Names kCapabilities[] = {
    {PCI_CAP_ID_PM, "Power Management"},
    {PCI_CAP_ID_AGP, "AGP"},
    {PCI_CAP_ID_VPD, "Vital Product Data"},
    {PCI_CAP_ID_SLOTID, "Slot Identification"},
    {PCI_CAP_ID_MSI, "MSI"},
    {PCI_CAP_ID_CHSWP, "CompactPCI Hot Swap"},
    {PCI_CAP_ID_PCIX, "PCI-X"},
    {PCI_CAP_ID_HT, "HyperTransport"},
    {PCI_CAP_ID_VNDR, "Vendor Specific"},
    {PCI_CAP_ID_DBG, "Debug Port"},
    {PCI_CAP_ID_SHPC, "Hot-Plug Controller"},
    {PCI_CAP_ID_SSVID, "Subsystem"},
    {PCI_CAP_ID_EXP, "PCI Express"},
    {PCI_CAP_ID_MSIX, "MSI-X"},
    {PCI_CAP_ID_SATA, "SATA HBA"},
    {PCI_CAP_ID_AF, "Advanced Features"},
    {PCI_CAP_ID_EA, "Enhanced Allocation"},
};

constexpr Names kExtendedCapabilities[] = {
    {PCI_EXT_CAP_ID_ERR, "Advanced Error Reporting"},
    {PCI_EXT_CAP_ID_VC, "Virtual Channel"},
    {PCI_EXT_CAP_ID_DSN, "Device Serial Number"},
    {PCI_EXT_CAP_ID_PWR, "Power Budgeting"},
    {PCI_EXT_CAP_ID_VNDR, "Vendor Specific"},
    {PCI_EXT_CAP_ID_ACS, "Access Control Services"},
    {PCI_EXT_CAP_ID_ARI, "Alternative Routing-ID"},
    {PCI_EXT_CAP_ID_ATS, "Address Translation Service"},
    {PCI_EXT_CAP_ID_SRIOV, "Single Root I/O Virtualization"},
    {PCI_EXT_CAP_ID_PRI, "Page Request Interface"},
    {PCI_EXT_CAP_ID_REBAR, "Resizable BAR"},
    {PCI_EXT_CAP_ID_DPA, "Dynamic Power Allocation"},
    {PCI_EXT_CAP_ID_TPH, "TPH Requester"},
    {PCI_EXT_CAP_ID_LTR, "Latency Tolerance Reporting"},
    {PCI_EXT_CAP_ID_SECPCI, "Secondary PCI Express"},
    {PCI_EXT_CAP_ID_PASID, "Process Address Space ID"},
    {PCI_EXT_CAP_ID_DPC, "Downstream Port Containment"},
    {PCI_EXT_CAP_ID_L1SS, "L1 PM Substates"},
    {PCI_EXT_CAP_ID_PTM, "Precision Time Measurement"},
};

constexpr Names kCommandBits[] = {
    {PCI_COMMAND_IO, "I/O"},
    {PCI_COMMAND_MEMORY, "memory"},
    {PCI_COMMAND_MASTER, "bus master"},
    {PCI_COMMAND_PARITY, "parity errors"},
    {PCI_COMMAND_SERR, "system errors"},
    {PCI_COMMAND_INTX_DISABLE, "INTx off"},
};

constexpr std::string_view kExpressTypes[] = {"endpoint",
                                              "legacy endpoint",
                                              "",
                                              "",
                                              "root port",
                                              "upstream port",
                                              "downstream port",
                                              "PCIe-to-PCI bridge",
                                              "PCI-to-PCIe bridge",
                                              "integrated endpoint",
                                              "event collector"};

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  // All-ones outside, as a bus reads.
  [[nodiscard]] uint32_t byte(size_t at) const { return at < bytes_.size() ? bytes_[at] : 0xff; }
  [[nodiscard]] uint16_t word(size_t at) const {
    return static_cast<uint16_t>(byte(at) | byte(at + 1) << 8);
  }
  [[nodiscard]] uint32_t dword(size_t at) const {
    return word(at) | static_cast<uint32_t>(word(at + 2)) << 16;
  }
  [[nodiscard]] size_t size() const { return bytes_.size(); }

 private:
  std::span<const uint8_t> bytes_;
};

template <size_t N>
std::string name_of(const Names (&names)[N], uint16_t id) {
  const auto* const found = std::find_if(std::begin(names), std::end(names),
                                         [&](const Names& n) { return n.first == id; });
  return found == std::end(names) ? fmt::format("capability {:02x}", id)
                                  : std::string(found->second);
}

std::string_view on_off(uint32_t bit) {
  return bit ? "on" : "off";
}

std::string describe_msi(const Reader& config, size_t at) {
  const uint16_t flags = config.word(at + PCI_MSI_FLAGS);
  return fmt::format("{} of {} vectors, {}, {}-bit{}", 1u << ((flags & PCI_MSI_FLAGS_QSIZE) >> 4),
                     1u << ((flags & PCI_MSI_FLAGS_QMASK) >> 1),
                     on_off(flags & PCI_MSI_FLAGS_ENABLE), flags & PCI_MSI_FLAGS_64BIT ? 64 : 32,
                     flags & PCI_MSI_FLAGS_MASKBIT ? ", maskable" : "");
}

std::string describe_msix(const Reader& config, size_t at) {
  const uint16_t flags = config.word(at + PCI_MSIX_FLAGS);
  const uint32_t table = config.dword(at + PCI_MSIX_TABLE);
  const uint32_t pending = config.dword(at + PCI_MSIX_PBA);
  return fmt::format(
      "{} vectors, {}{}, table in BAR {} at 0x{:x}, pending bits in BAR {} at 0x{:x}",
      (flags & PCI_MSIX_FLAGS_QSIZE) + 1, on_off(flags & PCI_MSIX_FLAGS_ENABLE),
      flags & PCI_MSIX_FLAGS_MASKALL ? ", all masked" : "", table & PCI_MSIX_TABLE_BIR,
      table & PCI_MSIX_TABLE_OFFSET, pending & PCI_MSIX_PBA_BIR, pending & PCI_MSIX_PBA_OFFSET);
}

std::string describe_express(const Reader& config, size_t at) {
  const uint32_t type = (config.word(at + PCI_EXP_FLAGS) & PCI_EXP_FLAGS_TYPE) >> 4;
  const std::string_view name = type < std::size(kExpressTypes) ? kExpressTypes[type] : "";
  const uint16_t status = config.word(at + PCI_EXP_LNKSTA);
  std::vector<std::string> parts{name.empty() ? fmt::format("type {}", type) : std::string(name)};
  if (const uint32_t width = (status & PCI_EXP_LNKSTA_NLW) >> PCI_EXP_LNKSTA_NLW_SHIFT; width > 0)
    parts.push_back(fmt::format("generation {} x{}", status & PCI_EXP_LNKSTA_CLS, width));
  if (config.dword(at + PCI_EXP_DEVCAP) & PCI_EXP_DEVCAP_FLR)
    parts.emplace_back("function-level reset");
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string describe(const Reader& config, uint16_t id, size_t at) {
  switch (id) {
    case PCI_CAP_ID_PM:
      return fmt::format("D{}", config.word(at + PCI_PM_CTRL) & PCI_PM_CTRL_STATE_MASK);
    case PCI_CAP_ID_MSI:
      return describe_msi(config, at);
    case PCI_CAP_ID_MSIX:
      return describe_msix(config, at);
    case PCI_CAP_ID_EXP:
      return describe_express(config, at);
    default:
      return {};
  }
}

std::string describe_extended(const Reader& config, uint16_t id, size_t at) {
  switch (id) {
    case PCI_EXT_CAP_ID_DSN:
      return fmt::format("{:08x}{:08x}", config.dword(at + 8), config.dword(at + 4));
    case PCI_EXT_CAP_ID_SRIOV:
      return fmt::format("{} of {} virtual functions", config.word(at + PCI_SRIOV_NUM_VF),
                         config.word(at + PCI_SRIOV_TOTAL_VF));
    default:
      return {};
  }
}

void read_capabilities(const Reader& config, std::vector<Capability>* found) {
  if (!(config.word(PCI_STATUS) & PCI_STATUS_CAP_LIST)) return;
  std::set<size_t> seen;
  for (size_t at = config.byte(PCI_CAPABILITY_LIST) & ~3u;
       at >= PCI_STD_HEADER_SIZEOF && seen.insert(at).second;
       at = config.byte(at + PCI_CAP_LIST_NEXT) & ~3u) {
    const auto id = static_cast<uint16_t>(config.byte(at));
    if (id == 0xff) return;
    found->push_back({static_cast<uint16_t>(at), id, false, name_of(kCapabilities, id),
                      describe(config, id, at)});
  }
}

void read_extended_capabilities(const Reader& config, std::vector<Capability>* found) {
  std::set<size_t> seen;
  for (size_t at = PCI_CFG_SPACE_SIZE;
       at >= PCI_CFG_SPACE_SIZE && at + 4 <= config.size() && seen.insert(at).second;) {
    const uint32_t header = config.dword(at);
    const auto id = static_cast<uint16_t>(PCI_EXT_CAP_ID(header));
    if (header == 0 || id == 0xffff) return;
    if (id != 0)
      found->push_back({static_cast<uint16_t>(at), id, true, name_of(kExtendedCapabilities, id),
                        describe_extended(config, id, at)});
    at = PCI_EXT_CAP_NEXT(header);
  }
}

void read_bars(const Reader& config, std::vector<ConfigBar>* found) {
  for (unsigned i = 0; i < PCI_STD_NUM_BARS; ++i) {
    const size_t at = PCI_BASE_ADDRESS_0 + 4 * i;
    const uint32_t low = config.dword(at);
    if (low == 0) continue;
    ConfigBar bar{i};
    bar.io = low & PCI_BASE_ADDRESS_SPACE_IO;
    if (bar.io) {
      bar.address = low & ~3u;
    } else {
      bar.bits64 = (low & PCI_BASE_ADDRESS_MEM_TYPE_MASK) == PCI_BASE_ADDRESS_MEM_TYPE_64;
      bar.prefetchable = low & PCI_BASE_ADDRESS_MEM_PREFETCH;
      bar.address = low & ~0xfu;
      if (bar.bits64 && i + 1 < PCI_STD_NUM_BARS) {
        bar.address |= static_cast<uint64_t>(config.dword(at + 4)) << 32;
        ++i;
      }
    }
    found->push_back(bar);
  }
  if (const uint32_t rom = config.dword(PCI_ROM_ADDRESS) & ~0x7ffu; rom != 0)
    found->push_back({6, false, false, false, rom});
}

}  // namespace

ConfigSpace decode_config_space(std::span<const uint8_t> bytes) {
  const Reader config(bytes);
  ConfigSpace space;
  space.vendor = config.word(PCI_VENDOR_ID);
  space.device = config.word(PCI_DEVICE_ID);
  space.class_revision = config.dword(PCI_CLASS_REVISION);
  space.header_type = config.byte(PCI_HEADER_TYPE) & 0x7f;
  for (const auto& [bit, name] : kCommandBits)
    if (config.word(PCI_COMMAND) & bit) space.command.emplace_back(name);
  space.interrupt_pin = static_cast<uint8_t>(config.byte(PCI_INTERRUPT_PIN));
  if (space.header_type == PCI_HEADER_TYPE_NORMAL) {
    space.subsystem_vendor = config.word(PCI_SUBSYSTEM_VENDOR_ID);
    space.subsystem_device = config.word(PCI_SUBSYSTEM_ID);
    read_bars(config, &space.bars);
  }
  read_capabilities(config, &space.capabilities);
  read_extended_capabilities(config, &space.capabilities);
  return space;
}

}  // namespace pcilend
