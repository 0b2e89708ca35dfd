// SPDX-License-Identifier: GPL-2.0-or-later
#include "dma_route.h"

#include <charconv>
#include <sstream>

namespace pcilend {
namespace {

using Level = Finding::Level;

// "pci0000:00", the host bridge that a device is below; empty if sysfs does not say.
std::string host_bridge(const Environment& environment, const std::string& address) {
  std::error_code error;
  const auto device =
      std::filesystem::read_symlink(environment.path("/sys/bus/pci/devices/" + address), error);
  for (const auto& part : device)
    if (part.native().starts_with("pci") && part.native().find(':') != std::string::npos)
      return part;
  return {};
}

// The value behind "name : value" of the first CPU.
std::string cpu_field(const std::string& cpuinfo, std::string_view name) {
  std::istringstream lines(cpuinfo);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with(name) && colon != std::string::npos) return line.substr(colon + 2);
  }
  return {};
}

// All of AMD's from Zen on route between ports (cpu_supports_p2pdma() of drivers/pci/p2pdma.c).
bool routes_between_ports(const Environment& environment) {
  const std::string cpuinfo = environment.read("/proc/cpuinfo").value_or("");
  const std::string family = cpu_field(cpuinfo, "cpu family");
  int number = 0;
  std::from_chars(family.data(), family.data() + family.size(), number);
  return cpu_field(cpuinfo, "vendor_id") == "AuthenticAMD" && number >= 0x17;
}

}  // namespace

std::vector<Finding> check_dma_route(const Environment& environment, const PciAddress& function,
                                     const std::vector<std::string>& adapters) {
  std::vector<Finding> findings;
  const std::string subject = to_string(function);
  const std::string own = host_bridge(environment, subject);
  const bool routed = routes_between_ports(environment);
  for (const auto& adapter : adapters) {
    const std::string other = host_bridge(environment, adapter);
    if (!own.empty() && !other.empty() && own != other) {
      findings.push_back({Level::Note, subject,
                          fmt::format("its DMA to adapter {} goes from {} to {}: many hosts are "
                                      "slow at that, or can't do it",
                                      adapter, own, other),
                          "put both into slots of one CPU"});
    } else if (routed) {
      findings.push_back(
          {Level::Ok, subject, fmt::format("this CPU routes its DMA to adapter {}", adapter), ""});
    } else {
      findings.push_back({Level::Note, subject,
                          fmt::format("its DMA to adapter {} is routed by the root complex, which "
                                      "not every CPU can: a borrower's I/O would stall",
                                      adapter),
                          "borrow it once and read from it, before you rely on it"});
    }
  }
  return findings;
}

}  // namespace pcilend
