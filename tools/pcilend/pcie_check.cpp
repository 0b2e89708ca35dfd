// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcie_check.h"

#include <linux/pci_regs.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "config_space.h"

namespace pcilend {
namespace {

using Level = Finding::Level;

// The configuration space of a function, with the places of its capabilities.
class Registers {
 public:
  // Nothing if there is no PCI Express capability that can be read.
  static std::optional<Registers> of(const Environment& environment, const std::string& address) {
    const auto text = environment.read(fmt::format("/sys/bus/pci/devices/{}/config", address));
    if (!text || text->size() < PCI_CFG_SPACE_SIZE) return std::nullopt;
    Registers registers;
    registers.bytes_.assign(text->begin(), text->end());
    if (text->size() < PCI_CFG_SPACE_EXP_SIZE) registers.bytes_.resize(PCI_CFG_SPACE_SIZE);
    registers.capabilities_ = decode_config_space(registers.bytes_).capabilities;
    registers.express_ = registers.find(PCI_CAP_ID_EXP, false);
    if (!registers.express_ || !registers.covers(*registers.express_, PCI_EXP_DEVCTL2 + 2))
      return std::nullopt;
    return registers;
  }

  [[nodiscard]] uint16_t control() const { return word(*express_ + PCI_EXP_DEVCTL); }
  [[nodiscard]] uint16_t control2() const { return word(*express_ + PCI_EXP_DEVCTL2); }
  [[nodiscard]] uint32_t capabilities2() const { return dword(*express_ + PCI_EXP_DEVCAP2); }
  [[nodiscard]] unsigned payload() const {
    return 128u << ((control() & PCI_EXP_DEVCTL_PAYLOAD) >> 5);
  }
  [[nodiscard]] unsigned read_request() const {
    return 128u << ((control() & PCI_EXP_DEVCTL_READRQ) >> 12);
  }
  // An extended capability's word; nothing if there is none.
  [[nodiscard]] std::optional<uint32_t> extended(uint16_t id, size_t offset) const {
    const auto at = find(id, true);
    if (!at || !covers(*at, offset + 4)) return std::nullopt;
    return dword(*at + offset);
  }

 private:
  [[nodiscard]] std::optional<size_t> find(uint16_t id, bool extended) const {
    for (const Capability& one : capabilities_)
      if (one.id == id && one.extended == extended) return one.offset;
    return std::nullopt;
  }
  [[nodiscard]] bool covers(size_t at, size_t bytes) const { return at + bytes <= bytes_.size(); }
  [[nodiscard]] uint16_t word(size_t at) const {
    uint16_t value;
    std::memcpy(&value, &bytes_[at], sizeof value);
    return value;
  }
  [[nodiscard]] uint32_t dword(size_t at) const {
    uint32_t value;
    std::memcpy(&value, &bytes_[at], sizeof value);
    return value;
  }

  std::vector<uint8_t> bytes_;
  std::vector<Capability> capabilities_;
  std::optional<size_t> express_;
};

// It, and the ports above it, the root port last.
std::vector<std::string> path_of(const Environment& environment, const std::string& address) {
  std::vector<std::string> path;
  const auto device = environment.resolve("/sys/bus/pci/devices/" + address);
  if (!device) return {address};
  for (auto part = *device; part.has_relative_path(); part = part.parent_path()) {
    const std::string name = part.filename();
    if (!parse_pci_address(name)) break;
    path.push_back(name);
  }
  return path;
}

std::string subject_of(const std::string& address, const std::string& adapter) {
  return address == adapter ? "adapter " + adapter
                            : fmt::format("port {} of adapter {}", address, adapter);
}

// The ranges that are over before an NTB and another host's IOMMU may have answered.
bool is_short(unsigned range) {
  return range == 1 || range == 2;
}

void check_completion_timeout(const Registers& registers, const std::string& subject,
                              const std::string& address, std::vector<Finding>* findings) {
  const uint16_t control = registers.control2();
  if ((control & PCI_EXP_DEVCTL2_COMP_TMOUT_DIS) != 0) {
    findings->push_back({Level::Note, subject,
                         "its Completion Timeout is off: a read that the peer never answers stays "
                         "forever",
                         fmt::format("setpci -s {} CAP_EXP+28.W=0:10", address)});
  } else if (is_short(control & PCI_EXP_DEVCTL2_COMP_TIMEOUT)) {
    const bool can = (registers.capabilities2() & 2) != 0;
    findings->push_back(
        {Level::Wrong, subject,
         "its Completion Timeout is 10 ms at most: reads through an NTB may take longer",
         can ? fmt::format("setpci -s {} CAP_EXP+28.W=6:f", address)
             : "set it in the firmware's setup"});
  }
}

// What the loss of a peer is, at this end of the link.
void check_severity(const Registers& registers, const std::string& subject,
                    const std::string& address, std::vector<Finding>* findings) {
  constexpr uint32_t kErrors = PCI_ERR_UNC_SURPDN | PCI_ERR_UNC_COMP_TIME;
  const auto mask = registers.extended(PCI_EXT_CAP_ID_ERR, PCI_ERR_UNCOR_MASK);
  const auto severity = registers.extended(PCI_EXT_CAP_ID_ERR, PCI_ERR_UNCOR_SEVER);
  if (!mask || !severity) return;
  const uint32_t fatal = ~*mask & *severity & kErrors;
  if (fatal == 0) return;
  const char* const which = fatal == kErrors              ? "Surprise Down and Completion Timeout"
                            : fatal == PCI_ERR_UNC_SURPDN ? "Surprise Down"
                                                          : "Completion Timeout";
  findings->push_back(
      {Level::Note, subject,
       fmt::format("{} is a fatal error: some hosts stop when their peer is switched off", which),
       fmt::format("setpci -s {} ECAP_AER+c.L=0:{:x}", address, fatal)});
}

void check_containment(const Registers& registers, const std::string& subject,
                       std::vector<Finding>* findings) {
  constexpr uint32_t kTriggers = 3u << 16;  // in the upper half: control
  const auto control = registers.extended(PCI_EXT_CAP_ID_DPC, PCI_EXP_DPC_CAP);
  if (control && (*control & kTriggers) != 0)
    findings->push_back({Level::Note, subject,
                         "Downstream Port Containment is on: an error takes the adapter off the "
                         "bus, and ends all leases over it",
                         ""});
}

}  // namespace

std::vector<Finding> check_adapter_path(const Environment& environment,
                                        const std::string& adapter) {
  std::vector<Finding> findings;
  std::optional<unsigned> payload;
  std::string below;
  for (const std::string& address : path_of(environment, adapter)) {
    const auto registers = Registers::of(environment, address);
    if (!registers) continue;
    const std::string subject = subject_of(address, adapter);
    if (!payload)
      findings.push_back({Level::Ok, subject,
                          fmt::format("Max Payload Size {}, Max Read Request Size {}: the same on "
                                      "the peer, or less than its",
                                      registers->payload(), registers->read_request()),
                          ""});
    else if (*payload > registers->payload())
      findings.push_back(
          {Level::Wrong, subject,
           fmt::format("Max Payload Size {}, and {} below sends up to {}: a fatal error",
                       registers->payload(), below, *payload),
           "boot with pci=pcie_bus_safe"});
    payload = registers->payload();
    below = address;
    check_completion_timeout(*registers, subject, address, &findings);
    check_severity(*registers, subject, address, &findings);
    check_containment(*registers, subject, &findings);
  }
  return findings;
}

std::vector<Finding> check_function_settings(const Environment& environment,
                                             const PciAddress& function,
                                             const std::vector<std::string>& adapters) {
  std::vector<Finding> findings;
  const std::string address = to_string(function);
  const auto registers = Registers::of(environment, address);
  if (!registers) return findings;
  check_completion_timeout(*registers, address, address, &findings);
  for (const std::string& adapter : adapters) {
    const auto other = Registers::of(environment, adapter);
    if (other && other->payload() < registers->payload())
      findings.push_back({Level::Note, address,
                          fmt::format("Max Payload Size {}, more than the {} of adapter {}: it is "
                                      "lowered when the function is lent",
                                      registers->payload(), other->payload(), adapter),
                          ""});
  }
  if (registers->read_request() < 256)
    findings.push_back({Level::Note, address,
                        fmt::format("Max Read Request Size {}: it reads a borrower's memory slowly",
                                    registers->read_request()),
                        fmt::format("setpci -s {} CAP_EXP+8.W=2000:7000", address)});
  std::vector<std::string_view> unlent;
  if ((registers->control() & PCI_EXP_DEVCTL_NOSNOOP_EN) != 0) unlent.emplace_back("No Snoop");
  if ((registers->control() & PCI_EXP_DEVCTL_PHANTOM) != 0)
    unlent.emplace_back("Phantom Functions");
  if (!unlent.empty())
    findings.push_back({Level::Ok, address,
                        fmt::format("{}: off while it is lent", fmt::join(unlent, " and ")), ""});
  if ((registers->control() & PCI_EXP_DEVCTL_RELAX_EN) != 0)
    findings.push_back({Level::Ok, address,
                        "Relaxed Ordering is on: its driver orders what depends on order, as on "
                        "its own host",
                        ""});
  constexpr uint32_t kAtsEnabled = 1u << 31;  // of control, in the upper half
  const auto ats = registers->extended(PCI_EXT_CAP_ID_ATS, PCI_ATS_CAP);
  if (ats && (*ats & kAtsEnabled) != 0)
    findings.push_back({Level::Note, address,
                        "it translates addresses by itself (ATS), which no IOMMU checks, and an "
                        "NTB does not pass on what belongs to it",
                        "boot with pci=noats"});
  return findings;
}

}  // namespace pcilend
