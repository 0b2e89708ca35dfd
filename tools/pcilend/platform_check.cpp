// SPDX-License-Identifier: GPL-2.0-or-later
#include "platform_check.h"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "pcie_check.h"
#include "pcilend/directory.h"

namespace pcilend {
namespace {

namespace fs = std::filesystem;
using Level = Finding::Level;

constexpr std::string_view kPciDevices = "/sys/bus/pci/devices";
constexpr std::string_view kNtbDevices = "/sys/bus/ntb/devices";
constexpr std::string_view kHook = "/etc/libvirt/hooks/qemu.d/pcilend";

std::vector<std::string> names_in(const Environment& environment, std::string_view directory) {
  std::vector<std::string> names;
  for (const auto& entry : entries(environment.path(directory))) names.push_back(entry.filename());
  return names;
}

// Last part of what a symbolic link points to; empty if there is none.
std::string link_target(const Environment& environment, std::string_view link) {
  std::error_code error;
  return fs::read_symlink(environment.path(link), error).filename();
}

std::string trimmed(const Result<std::string>& text) {
  if (!text) return {};
  return text->substr(0, text->find_last_not_of(" \n") + 1);
}

// Patterns of modalias and the NTB hardware driver for each, as modprobe has them.
std::multimap<std::string, std::string> ntb_aliases(const Environment& environment) {
  std::multimap<std::string, std::string> aliases;
  const std::string release = trimmed(environment.read("/proc/sys/kernel/osrelease"));
  const auto text = environment.read(fmt::format("/lib/modules/{}/modules.alias", release));
  std::istringstream lines(text.value_or(""));
  std::string word;
  std::string pattern;
  std::string module;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    if (!(fields >> word >> pattern >> module) || word != "alias" || !pattern.starts_with("pci:"))
      continue;
    if (module.starts_with("ntb_hw_")) aliases.emplace(pattern, module);
    // The driver of all that a Switchtec can be; as a bridge it is an NTB.
    if (module == "switchtec" && pattern.find("bc06sc80") != std::string::npos)
      aliases.emplace(pattern, "ntb_hw_switchtec");
  }
  return aliases;
}

// Adapters that no driver has.
void find_idle_adapters(const Environment& environment, std::vector<Finding>* findings) {
  const auto aliases = ntb_aliases(environment);
  for (const auto& name : names_in(environment, kPciDevices)) {
    const std::string device = fmt::format("{}/{}", kPciDevices, name);
    if (!link_target(environment, device + "/driver").empty()) continue;
    const std::string modalias = trimmed(environment.read(device + "/modalias"));
    const auto match = std::find_if(aliases.begin(), aliases.end(), [&](const auto& alias) {
      return ::fnmatch(alias.first.c_str(), modalias.c_str(), 0) == 0;
    });
    if (match != aliases.end())
      findings->push_back({Level::Wrong, "adapter " + name, "no driver has it",
                           fmt::format("modprobe {}", match->second)});
  }
}

// Windows that their driver cuts, whatever the adapter has.
void check_window_limit(const Environment& environment, std::vector<Finding>* findings) {
  const std::string limit =
      trimmed(environment.read("/sys/module/ntb_hw_switchtec/parameters/max_mw_size"));
  if (limit == "2097152")
    findings->push_back({Level::Note, "ntb_hw_switchtec",
                         "it cuts memory windows to 2 MiB, by default: too little for VMs",
                         "options ntb_hw_switchtec max_mw_size=0x4000000000 in /etc/modprobe.d, "
                         "on both hosts"});
}

Finding check_client(const Environment& environment, const std::string& adapter) {
  const std::string subject = "adapter " + adapter;
  const std::string client =
      link_target(environment, fmt::format("{}/{}/driver", kNtbDevices, adapter));
  const std::string driver =
      link_target(environment, fmt::format("{}/{}/driver", kPciDevices, adapter));
  if (client == "pcilend")
    return {Level::Ok, subject, fmt::format("driven by {}, used by pcilend", driver), ""};
  if (client.empty())
    return {Level::Wrong, subject, fmt::format("driven by {}, but nothing uses it", driver),
            fmt::format("modprobe pcilend node=N, or if it is loaded: echo {} > "
                        "/sys/bus/ntb/drivers/pcilend/bind",
                        adapter)};
  return {Level::Wrong, subject, fmt::format("used by {}", client),
          fmt::format("echo {0} > /sys/bus/ntb/drivers/{1}/unbind, then echo {0} > "
                      "/sys/bus/ntb/drivers/pcilend/bind",
                      adapter, client)};
}

// Adapters without an IOMMU are used because somebody wants that.
bool is_direct(const Environment& environment) {
  return trimmed(environment.read("/sys/module/pcilend/parameters/direct")) == "Y";
}

Finding direct_finding(const std::string& subject, const std::string& why) {
  return {
      Level::Note, subject,
      fmt::format("{}: its peer reaches all memory and all interrupts of this host, as direct=1 "
                  "of pcilend allows",
                  why),
      ""};
}

Finding check_translation(const Environment& environment, const std::string& adapter) {
  const std::string subject = "adapter " + adapter;
  const std::string group =
      link_target(environment, fmt::format("{}/{}/iommu_group", kPciDevices, adapter));
  if (group.empty() && is_direct(environment))
    return direct_finding(subject, "no IOMMU is in front of it");
  if (group.empty())
    return {Level::Wrong, subject, "no IOMMU is in front of it: a peer would reach all memory",
            "switch the IOMMU on in the firmware's setup, and boot with intel_iommu=on on Intel "
            "hosts; or load pcilend with direct=1 to allow that"};
  const std::string type =
      trimmed(environment.read(fmt::format("/sys/kernel/iommu_groups/{}/type", group)));
  if (type == "identity") {
    const auto why =
        fmt::format("its IOMMU group {} passes addresses through (type identity)", group);
    if (is_direct(environment)) return direct_finding(subject, why);
    return {Level::Wrong, subject, why,
            "boot without iommu=pt and iommu.passthrough=1; or load pcilend with direct=1 to let "
            "peers reach all memory"};
  }
  return {Level::Ok, subject, fmt::format("IOMMU group {} translates (type {})", group, type), ""};
}

Finding check_module(const Environment& environment) {
  if (environment.exists("/sys/module/pcilend"))
    return {Level::Ok, "module", "pcilend is loaded", ""};
  const std::string release = trimmed(environment.read("/proc/sys/kernel/osrelease"));
  const std::string built = fmt::format("/lib/modules/{}/updates/dkms", release);
  const auto modules = names_in(environment, built);
  const bool is_built = std::any_of(modules.begin(), modules.end(), [](const std::string& name) {
    return name.starts_with("pcilend.ko");
  });
  if (environment.exists("/var/lib/dkms/pcilend") && !is_built)
    return {Level::Wrong, "module", fmt::format("DKMS has not built it for kernel {}", release),
            fmt::format("apt install linux-headers-{0} linux-source-{1}, then dkms autoinstall -k "
                        "{0}",
                        release, release.substr(0, release.find('.', release.find('.') + 1)))};
  return {Level::Wrong, "module", "pcilend is not loaded",
          "modprobe pcilend node=N, with a number from 1 to 65535 that no other host has"};
}

Finding check_iommu(const Environment& environment) {
  const auto units = names_in(environment, "/sys/class/iommu");
  if (units.empty())
    return {is_direct(environment) ? Level::Note : Level::Wrong, "IOMMU",
            "there is none, or it is off: VMs can't borrow here",
            "switch it on in the firmware's setup, and boot with intel_iommu=on on Intel hosts"};
  return {Level::Ok, "IOMMU", fmt::format("{}", fmt::join(units, ", ")), ""};
}

// pcilend.ko uses no adapter without interrupt remapping, unless it was told to.
void check_interrupts(const Environment& environment, std::vector<Finding>* findings) {
  if (trimmed(environment.read("/sys/module/pcilend/parameters/unsafe_interrupts")) == "Y")
    findings->push_back({Level::Wrong, "interrupts",
                         "remapping is not required: a peer may be able to raise any interrupt",
                         "load pcilend without unsafe_interrupts, on hosts that remap interrupts"});
}

// Nor one that shares its IOMMU group.
void check_groups(const Environment& environment, std::vector<Finding>* findings) {
  if (trimmed(environment.read("/sys/module/pcilend/parameters/unsafe_groups")) == "Y")
    findings->push_back(
        {Level::Wrong, "IOMMU groups",
         "adapters may share theirs: a peer reaches what the other devices in it do",
         "load pcilend without unsafe_groups, with each adapter in a slot of its own"});
}

}  // namespace

std::vector<Finding> check_platform(const Environment& environment) {
  std::vector<Finding> findings{check_module(environment), check_iommu(environment)};
  check_interrupts(environment, &findings);
  check_groups(environment, &findings);
  const auto adapters = names_in(environment, kNtbDevices);
  for (const auto& adapter : adapters) {
    findings.push_back(check_client(environment, adapter));
    findings.push_back(check_translation(environment, adapter));
    for (auto& finding : check_adapter_path(environment, adapter))
      findings.push_back(std::move(finding));
  }
  check_window_limit(environment, &findings);
  const size_t before = findings.size();
  find_idle_adapters(environment, &findings);
  if (adapters.empty() && findings.size() == before)
    findings.push_back({Level::Wrong, "adapters", "no NTB adapter is known to the kernel",
                        "put one in, switch it on in the firmware's setup, and load its driver "
                        "(ntb_hw_amd, ntb_hw_intel, ntb_hw_switchtec, ...)"});
  return findings;
}

std::vector<Finding> check_frontends(const Environment& environment, bool offered) {
  std::vector<Finding> findings;
  if (environment.exists("/sys/module/pcilend_shadow")) {
    findings.push_back({Level::Ok, "this host", "frontend shadow is loaded", ""});
  } else {
    findings.push_back({offered ? Level::Wrong : Level::Note, "this host",
                        "frontend shadow is not loaded: its own drivers can't use what it borrows",
                        "modprobe pcilend_shadow"});
  }
  if (environment.exists("/sys/module/pcilend_mdev")) {
    findings.push_back({Level::Ok, "VMs", "pcilend_mdev.ko is loaded", ""});
  } else {
    findings.push_back({offered ? Level::Wrong : Level::Note, "VMs",
                        "pcilend_mdev.ko is not loaded: VMs of this host can't borrow",
                        "modprobe pcilend_mdev"});
  }
  if (environment.exists(kHook)) {
    findings.push_back({Level::Ok, "VMs", "libvirt's hook is installed", ""});
    if (trimmed(environment.read("/sys/fs/selinux/enforce")) == "1")
      findings.push_back(
          {Level::Note, "VMs",
           "SELinux is enforcing: if its policy keeps libvirt from running hooks, no "
           "domain starts (ausearch -m avc; setsebool -P virt_hooks_unconfined on)",
           ""});
    if (!environment.exists("/dev/kvm"))
      findings.push_back({Level::Note, "VMs",
                          "there is no /dev/kvm: virtualisation is off in the firmware's setup, or "
                          "its module (kvm_intel, kvm_amd) is not loaded",
                          ""});
  } else if (environment.exists("/etc/libvirt/qemu.conf")) {
    findings.push_back(
        {Level::Wrong, "VMs", fmt::format("libvirt has no hook {}: domains do not borrow", kHook),
         "install the package pcilend-libvirt; or copy the hook, and systemctl reload libvirtd"});
  } else {
    findings.push_back({Level::Note, "VMs", "libvirt is not installed here", ""});
  }
  return findings;
}

}  // namespace pcilend
