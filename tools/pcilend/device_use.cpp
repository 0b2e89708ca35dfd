// SPDX-License-Identifier: GPL-2.0-or-later
#include "device_use.h"

#include <fcntl.h>
#include <linux/if.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "device_tree.h"
#include "pcilend/directory.h"
#include "pcilend/fd.h"
#include "pcilend/open_devices.h"
#include "session.h"

namespace pcilend {
namespace {

namespace fs = std::filesystem;

struct BlockDevice {
  std::string name;    // nvme0n1p1
  std::string number;  // major:minor
};

// Spaces, tabs, newlines and backslashes stand as \ooo in mountinfo and swaps.
std::string unescape(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto octal = [&](size_t at) { return text[at] >= '0' && text[at] <= '7'; };
    if (text[i] == '\\' && i + 3 < text.size() && octal(i + 1) && octal(i + 2) && octal(i + 3)) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                 (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

struct Mount {
  std::string number;  // of the file system; anonymous for btrfs and others
  std::string target;
  std::string source;
};

// proc_pid_mountinfo(5): id parent major:minor root target options [fields] - type source super
std::vector<Mount> parse_mounts(const std::string& text) {
  std::vector<Mount> mounts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    Mount mount;
    std::string skip;
    fields >> skip >> skip >> mount.number >> skip >> mount.target;
    while (fields >> skip && skip != "-") {
    }
    fields >> skip >> mount.source;
    if (!fields) continue;
    mount.target = unescape(mount.target);
    mount.source = unescape(mount.source);
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

std::vector<std::string> parse_swaps(const std::string& text) {
  std::vector<std::string> devices;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);  // heading
  while (std::getline(lines, line)) devices.push_back(unescape(line.substr(0, line.find(' '))));
  return devices;
}

// True if a kernel subsystem or a program has the device for itself (open(2), O_EXCL).
bool claimed(const Environment& environment, const std::string& name) {
  const UniqueFd fd(
      ::open(environment.path("/dev/" + name).c_str(), O_RDONLY | O_EXCL | O_CLOEXEC | O_NONBLOCK));
  return !fd && errno == EBUSY;
}

std::vector<std::string> block_reasons(const Environment& environment, const BlockDevice& device,
                                       const std::vector<Mount>& mounts,
                                       const std::vector<std::string>& swaps) {
  std::vector<std::string> reasons;
  const std::string node = "/dev/" + device.name;
  for (const auto& mount : mounts) {
    if (mount.number == device.number || mount.source == node)
      reasons.push_back(
          fmt::format("{} is mounted on {}: run 'umount {}'", node, mount.target, mount.target));
  }
  for (const auto& swap : swaps) {
    if (swap == node) reasons.push_back(fmt::format("{0} is swap: run 'swapoff {0}'", node));
  }
  for (const auto& holder :
       entries(environment.path(fmt::format("/sys/class/block/{}/holders", device.name))))
    reasons.push_back(fmt::format("{} is part of /dev/{}: stop that first (lsblk shows the stack)",
                                  node, holder.filename().native()));
  return reasons;
}

// Of disks and partitions.
Result<std::vector<std::string>> disk_reasons(const Environment& environment,
                                              const std::vector<std::string>& disks) {
  const auto mountinfo = environment.read("/proc/self/mountinfo");
  if (!mountinfo) return tl::unexpected(mountinfo.error());
  const auto mounts = parse_mounts(*mountinfo);
  const auto swaps = parse_swaps(environment.read("/proc/swaps").value_or(""));
  std::vector<std::string> reasons;
  for (const auto& name : disks) {
    const BlockDevice block{
        name, first_line(environment.read(fmt::format("/sys/class/block/{}/dev", name)))};
    for (auto& reason : block_reasons(environment, block, mounts, swaps))
      reasons.push_back(std::move(reason));
  }
  if (!reasons.empty()) return reasons;
  // Whatever was found claims its device, and a partition's claim its disk's: ask only otherwise.
  for (const auto& name : disks)
    if (claimed(environment, name))
      reasons.push_back(fmt::format("/dev/{0} is in use: 'lsof /dev/{0}' may say by whom", name));
  return reasons;
}

// Does a line of the table have the interface in that column?
bool names_interface(const std::string& table, const std::string& name, size_t column,
                     const std::string& except_scope = {}) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    const std::vector<std::string> words{std::istream_iterator<std::string>(fields), {}};
    if (words.size() > column && words[column] == name &&
        (except_scope.empty() || words[3] != except_scope))
      return true;
  }
  return false;
}

// Why an interface that is up is needed. One that has only the IPv6 address of its link, which the
// kernel gives to each, is not.
std::optional<std::string> network_reason(const Environment& environment, const std::string& name) {
  constexpr std::string_view kLinkScope = "20";
  const std::string device = "/sys/class/net/" + name;
  if (environment.exists(device + "/master")) {
    const auto master = environment.resolve(device + "/master");
    return fmt::format("network interface {0} is part of {1}: run 'ip link set {0} nomaster'", name,
                       master ? master->filename().native() : "another one");
  }
  for (const auto& entry : entries(environment.path(device))) {
    const std::string upper = entry.filename();
    if (upper.starts_with("upper_"))
      return fmt::format("network interface {} is part of {}: remove that first", name,
                         upper.substr(6));
  }
  // Each address has a route to its network: proc(5), /proc/net/route: interface first;
  // /proc/net/if_inet6: address, index, prefix, scope, flags, interface.
  if (names_interface(environment.read("/proc/net/route").value_or(""), name, 0) ||
      names_interface(environment.read("/proc/net/if_inet6").value_or(""), name, 5,
                      std::string(kLinkScope)))
    return fmt::format("network interface {0} is up and has an address: run 'ip link set {0} down'",
                       name);
  return std::nullopt;
}

// Programs that drive the device themselves: by UIO, as DPDK does, or as a display or accelerator.
std::vector<std::string> program_reasons(const Environment& environment,
                                         const std::vector<fs::path>& trees) {
  std::vector<std::string> nodes;
  for (const auto& [class_name, directory] :
       {std::pair{"uio", "/dev/"}, {"drm", "/dev/dri/"}, {"accel", "/dev/accel/"}})
    for (const auto& name : class_members(environment, class_name, trees))
      nodes.push_back(directory + name);
  std::vector<std::string> reasons;
  if (nodes.empty()) return reasons;
  for (const auto& program : programs_with(environment, nodes))
    reasons.push_back(fmt::format("{} has it open: end that first", program));
  return reasons;
}

}  // namespace

Result<DeviceUse> find_device_use(const Environment& environment, const PciAddress& address) {
  const auto trees = dependent_trees(environment, address);
  if (!trees) return tl::unexpected(trees.error());

  DeviceUse use;
  auto blocks = disk_reasons(environment, class_members(environment, "block", *trees));
  if (!blocks) return tl::unexpected(std::move(blocks).error());
  use.block = std::move(*blocks);
  for (const auto& name : class_members(environment, "net", *trees)) {
    const auto flags = environment.read(fmt::format("/sys/class/net/{}/flags", name));
    if (!flags || !(std::strtoul(flags->c_str(), nullptr, 16) & IFF_UP)) continue;
    use.interfaces.push_back(name);
    if (auto reason = network_reason(environment, name)) use.network.push_back(std::move(*reason));
  }
  use.programs = program_reasons(environment, *trees);
  use.vfio = vfio_user(environment, to_string(address));
  return use;
}

Result<std::vector<std::string>> find_disk_use(const Environment& environment,
                                               const std::string& name) {
  std::vector<std::string> disks{name};
  for (const auto& entry : entries(environment.path("/sys/class/block/" + name)))
    if (entry.filename().native().starts_with(name)) disks.push_back(entry.filename());
  return disk_reasons(environment, disks);
}

Result<DeviceUse> check_unused(const Host& host, const PciAddress& address, bool force) {
  auto use = find_device_use(host.environment, address);
  if (!use) return use;
  if (use->vfio)
    return fail(ErrorClass::State,
                "a VM or another user of VFIO has it ({}): end that first; --force does not help",
                *use->vfio);
  std::vector<std::string> reasons = use->block;
  reasons.insert(reasons.end(), use->network.begin(), use->network.end());
  reasons.insert(reasons.end(), use->programs.begin(), use->programs.end());
  if (!reasons.empty() && !force) {
    const size_t more = reasons.size() - 1;
    return fail(ErrorClass::State, "{}{}, or use --force{}", reasons.front(),
                more ? fmt::format(" (and {} more uses)", more) : "",
                use->block.empty() ? "" : " and lose what is not written");
  }
  return use;
}

void warn_of_loss(const Host& host, const DeviceUse& use) {
  for (const auto* const reasons : {&use.block, &use.network, &use.programs})
    for (const auto& reason : *reasons) host.warn(fmt::format("taken by force: {}", reason));
  if (!use.network.empty()) return;
  for (const auto& name : use.interfaces)
    host.warn(fmt::format("network interface {} was up and is gone", name));
}

}  // namespace pcilend
