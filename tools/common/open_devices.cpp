// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/open_devices.h"

#include <fcntl.h>

#include <algorithm>
#include <charconv>

#include "pcilend/directory.h"
#include "pcilend/fd.h"

namespace pcilend {
namespace {

namespace fs = std::filesystem;

// A group is opened by one process at a time, and by none while one of its devices is in use, also
// by its own node.
bool group_is_busy(const Environment& environment, const std::string& node) {
  const UniqueFd fd(::open(environment.path(node).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  return !fd && errno == EBUSY;
}

}  // namespace

std::vector<std::string> programs_with(const Environment& environment,
                                       const std::vector<std::string>& nodes) {
  std::vector<fs::path> wanted;
  wanted.reserve(nodes.size());
  for (const auto& node : nodes) wanted.push_back(environment.path(node));
  std::vector<std::pair<int, std::string>> found;
  for (const auto& process : entries(environment.path("/proc"))) {
    const std::string name = process.filename();
    int pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ptr !=
        name.data() + name.size())
      continue;
    const auto open_ones = entries(process / "fd");
    if (std::none_of(open_ones.begin(), open_ones.end(), [&](const fs::path& link) {
          std::error_code error;
          const fs::path target = fs::read_symlink(link, error);
          return !error && std::find(wanted.begin(), wanted.end(), target) != wanted.end();
        }))
      continue;
    auto command = environment.read(fmt::format("/proc/{}/comm", pid)).value_or("a process");
    command.erase(std::find(command.begin(), command.end(), '\n'), command.end());
    found.emplace_back(pid, fmt::format("{} (pid {})", command, pid));
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> programs;
  programs.reserve(found.size());
  for (auto& [pid, text] : found) programs.push_back(std::move(text));
  return programs;
}

std::optional<std::string> vfio_user(const Environment& environment, std::string_view bdf) {
  const std::string device = fmt::format("/sys/bus/pci/devices/{}", bdf);
  std::vector<std::string> nodes;
  for (const auto& node : entries(environment.path(device + "/vfio-dev")))
    nodes.push_back("/dev/vfio/devices/" + node.filename().native());
  bool busy = false;
  bool told = false;
  std::error_code error;
  const fs::path group = fs::read_symlink(environment.path(device + "/iommu_group"), error);
  for (const char* const prefix : {"", "noiommu-"}) {
    const std::string node = fmt::format("/dev/vfio/{}{}", prefix, group.filename().native());
    if (error || !environment.exists(node)) continue;
    told = true;
    busy |= group_is_busy(environment, node);
    nodes.push_back(node);
  }
  // Processes are only looked at when one is to be named, or the kernel has no groups.
  if (nodes.empty() || (told && !busy)) return std::nullopt;
  const auto programs = programs_with(environment, nodes);
  if (!programs.empty()) return programs.front();
  if (busy) return "a process";
  return std::nullopt;
}

}  // namespace pcilend
