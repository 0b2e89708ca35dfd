// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/policy/kinds.h"

#include <algorithm>
#include <charconv>

#include "pcilend/kind.h"

namespace pcilend::policy {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDriver = "/sys/bus/pci/drivers/pcilend_mdev";

std::string driver_file(std::string_view name) {
  return fmt::format("{}/{}", kDriver, name);
}

// Nothing if it has gone meanwhile.
std::optional<PresentKind> read_kind(const Environment& environment, const PciAddress& address) {
  const std::string device = driver_file(to_string(address));
  const auto text = environment.read(device + "/kind");
  if (!text) return std::nullopt;
  const std::string_view line(text->data(), std::min(text->find('\n'), text->size()));
  const size_t blank = std::min(line.find(' '), line.size());
  PresentKind kind;
  kind.address = address;
  kind.name = line.substr(0, blank);
  kind.matches = line.substr(std::min(blank + 1, line.size()));
  kind.type = "pcilend_mdev-" + kind.name;
  const std::string type = fmt::format("{}/mdev_supported_types/{}", device, kind.type);
  if (const auto count = environment.read(type + "/available_instances"))
    std::from_chars(count->data(), count->data() + count->size(), kind.available);
  std::error_code error;
  for (fs::directory_iterator it(environment.path(type + "/devices"), error), end;
       !error && it != end; it.increment(error))
    ++kind.devices;
  return kind;
}

Result<> check_loaded(const Environment& environment) {
  if (environment.exists(driver_file("new_kind"))) return {};
  return fail(ErrorClass::Unreachable, "pcilend_mdev.ko is not loaded: modprobe pcilend_mdev");
}

}  // namespace

Result<std::vector<PresentKind>> present_kinds(const Environment& environment) {
  PCILEND_TRY(check_loaded(environment));
  std::vector<PresentKind> kinds;
  std::error_code error;
  for (fs::directory_iterator it(environment.path(kDriver), error), end; !error && it != end;
       it.increment(error)) {
    const auto address = parse_pci_address(it->path().filename().native());
    if (!address) continue;
    if (auto kind = read_kind(environment, *address)) kinds.push_back(std::move(*kind));
  }
  if (error) return fail_errno(kDriver, error.value());
  std::sort(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) {
    return to_string(a.address) < to_string(b.address);
  });
  return kinds;
}

bool is_fixed_kind(const std::string& name) {
  return pcilend_kind_is_reserved(name.c_str());
}

Result<> make_kind(const Environment& environment, const std::string& text) {
  PCILEND_TRY(check_loaded(environment));
  auto made = environment.write_attribute(driver_file("new_kind"), text);
  if (!made && made.error().kind == ErrorClass::Failure)
    made.error().message += ": 'dmesg' says why";
  return made;
}

Result<> end_kind(const Environment& environment, const PresentKind& kind) {
  auto ended = environment.write_attribute(driver_file("remove_kind"), kind.name);
  if (ended || ended.error().kind == ErrorClass::Permission) return ended;
  const auto now = read_kind(environment, kind.address);
  if (!now || now->name != kind.name) return {};
  if (now->devices == 0) return ended;
  const std::string devices = fmt::format("{}/mdev_supported_types/{}/devices",
                                          driver_file(to_string(kind.address)), kind.type);
  return fail(ErrorClass::State, "mediated devices of it exist: remove them first: they are in {}",
              devices);
}

}  // namespace pcilend::policy
