// SPDX-License-Identifier: GPL-2.0-or-later
#include "device_use.h"

#include <fcntl.h>
#include <linux/if.h>

#include <algorithm>
#include <sstream>

#include "device_tree.h"
#include "pcilend/fd.h"
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

// Files by which users of VFIO open the function: its group's, or one of its own.
std::vector<fs::path> vfio_files(const Environment& environment, const std::string& device) {
  std::vector<fs::path> files;
  if (const auto group = environment.resolve(device + "/iommu_group"))
    files.push_back(fs::path("/dev/vfio") / group->filename());
  for (const auto& entry : entries(environment.path(device + "/vfio-dev")))
    files.push_back(fs::path("/dev/vfio/devices") / entry.filename());
  return files;
}

std::vector<std::string> vfio_reasons(const Environment& environment, const PciAddress& address) {
  std::vector<std::string> reasons;
  const auto files =
      vfio_files(environment, fmt::format("/sys/bus/pci/devices/{}", to_string(address)));
  for (const auto& process : entries(environment.path("/proc"))) {
    const std::string id = process.filename();
    if (id.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto opened = entries(process / "fd");
    if (std::none_of(opened.begin(), opened.end(), [&](const fs::path& fd) {
          std::error_code error;
          const fs::path file = fs::read_symlink(fd, error);
          return std::find(files.begin(), files.end(), file) != files.end();
        }))
      continue;
    const auto name = first_line(environment.read(fmt::format("/proc/{}/comm", id)));
    reasons.push_back(fmt::format("process {} ({}) uses it through VFIO: end that, or the guest",
                                  id, name.empty() ? "?" : name));
  }
  return reasons;
}

}  // namespace

Result<DeviceUse> find_device_use(const Environment& environment, const PciAddress& address) {
  const auto trees = dependent_trees(environment, address);
  if (!trees) return tl::unexpected(trees.error());

  DeviceUse use;
  const auto mountinfo = environment.read("/proc/self/mountinfo");
  if (!mountinfo) return tl::unexpected(mountinfo.error());
  const auto mounts = parse_mounts(*mountinfo);
  const auto swaps = parse_swaps(environment.read("/proc/swaps").value_or(""));
  use.vfio = vfio_reasons(environment, address);
  const auto disks = class_members(environment, "block", *trees);
  for (const auto& name : disks) {
    const BlockDevice block{
        name, first_line(environment.read(fmt::format("/sys/class/block/{}/dev", name)))};
    for (auto& reason : block_reasons(environment, block, mounts, swaps))
      use.block.push_back(std::move(reason));
  }
  // Whatever was found claims its device, and a partition's claim its disk's: ask only otherwise.
  if (use.block.empty()) {
    for (const auto& name : disks) {
      if (claimed(environment, name))
        use.block.push_back(
            fmt::format("/dev/{0} is in use: 'lsof /dev/{0}' may say by whom", name));
    }
  }
  for (const auto& name : class_members(environment, "net", *trees)) {
    const auto flags = environment.read(fmt::format("/sys/class/net/{}/flags", name));
    if (flags && (std::strtoul(flags->c_str(), nullptr, 16) & IFF_UP))
      use.interfaces.push_back(name);
  }
  return use;
}

Result<> check_unused(const Host& host, const PciAddress& address, bool force) {
  const auto use = find_device_use(host.environment, address);
  if (!use) return tl::unexpected(use.error());
  // By force it is the kernel that refuses.
  if (!use->vfio.empty() && !force) return fail(ErrorClass::State, "{}", use->vfio.front());
  if (!use->block.empty() && !force) {
    const size_t more = use->block.size() - 1;
    return fail(ErrorClass::State, "{}{}, or use --force and lose what is not written",
                use->block.front(), more ? fmt::format(" (and {} more uses)", more) : "");
  }
  for (const auto& reason : use->block) host.warn(fmt::format("taken by force: {}", reason));
  for (const auto& name : use->interfaces)
    host.warn(fmt::format("network interface {} was up and is gone", name));
  return {};
}

}  // namespace pcilend
