// SPDX-License-Identifier: GPL-2.0-or-later
#include "device_tree.h"

#include <algorithm>

#include "pcilend/directory.h"

namespace pcilend {

namespace fs = std::filesystem;

namespace {

bool lies_below(const fs::path& path, const fs::path& directory) {
  const auto [at, rest] =
      std::mismatch(directory.begin(), directory.end(), path.begin(), path.end());
  return at == directory.end();
}

fs::path resolved(const fs::path& path) {
  std::error_code error;
  return fs::canonical(path, error);
}

}  // namespace

std::string first_line(const Result<std::string>& text) {
  return text ? text->substr(0, text->find('\n')) : std::string();
}

Result<std::vector<fs::path>> dependent_trees(const Environment& environment,
                                              const PciAddress& address) {
  const fs::path device = resolved(environment.path("/sys/bus/pci/devices/" + to_string(address)));
  if (device.empty())
    return fail(ErrorClass::NotFound, "no PCI function {} on this host", to_string(address));
  std::vector<fs::path> trees{device};
  for (const auto& subsystem : entries(environment.path("/sys/class/nvme-subsystem"))) {
    const auto links = entries(subsystem);
    if (std::any_of(links.begin(), links.end(), [&](const fs::path& link) {
          std::error_code error;  // what goes meanwhile is no link
          return fs::is_symlink(link, error) && link.filename() != "subsystem" &&
                 lies_below(resolved(link), device);
        }))
      trees.push_back(resolved(subsystem));
  }
  return trees;
}

std::vector<std::string> class_members(const Environment& environment, std::string_view class_name,
                                       const std::vector<fs::path>& trees) {
  std::vector<std::string> names;
  for (const auto& entry : entries(environment.path(fmt::format("/sys/class/{}", class_name)))) {
    const fs::path target = resolved(entry);
    if (std::any_of(trees.begin(), trees.end(),
                    [&](const fs::path& tree) { return lies_below(target, tree); }))
      names.push_back(entry.filename());
  }
  return names;
}

}  // namespace pcilend
