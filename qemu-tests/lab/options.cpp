// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

namespace pcilend::lab {
namespace {

// Objects that every host has: see qemu_command.cpp.
constexpr std::array<std::string_view, 2> kOwnObjects = {"memory", "qmp"};

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

bool is_name(std::string_view text, std::string_view more) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || more.find(c) != std::string_view::npos;
  });
}

// Takes the text up to the next single comma off the front; ",," stands for a comma.
std::string take_field(std::string_view& text) {
  std::string field;
  while (!text.empty()) {
    if (text.front() != ',') {
      field.push_back(text.front());
      text.remove_prefix(1);
    } else if (text.starts_with(",,")) {
      field.push_back(',');
      text.remove_prefix(2);
    } else {
      text.remove_prefix(1);
      break;
    }
  }
  return field;
}

void append_escaped(std::string& out, std::string_view value) {
  for (const char c : value) {
    if (c == ',') out.push_back(',');
    out.push_back(c);
  }
}

struct HostAndRest {
  int host;
  std::string_view rest;
};

Result<HostAndRest> split_host(std::string_view option, std::string_view text,
                               std::string_view form, int hosts) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == text.size())
    return fail(ErrorClass::Usage, "{} '{}': give it as {}", option, text, form);
  auto host = parse_host(text.substr(0, colon), hosts);
  if (!host)
    return tl::unexpected(std::move(host).error().in(fmt::format("{} '{}'", option, text)));
  return HostAndRest{*host, text.substr(colon + 1)};
}

}  // namespace

std::string_view to_string(Iommu iommu) {
  switch (iommu) {
    case Iommu::Intel:
      return "intel";
    case Iommu::Amd:
      return "amd";
    case Iommu::Off:
      break;
  }
  return "off";
}

Result<Iommu> parse_iommu(std::string_view text) {
  for (const Iommu iommu : {Iommu::Intel, Iommu::Amd, Iommu::Off})
    if (text == to_string(iommu)) return iommu;
  return fail(ErrorClass::Usage, "--iommu '{}': it is intel, amd or off", text);
}

std::string_view to_string(Adapter adapter) {
  return adapter == Adapter::Switchtec ? "switchtec" : "amd";
}

Result<std::vector<Adapter>> parse_adapters(std::string_view text) {
  std::vector<Adapter> adapters;
  for (std::string_view rest = text; adapters.empty() || !rest.empty();) {
    const std::string name = take_field(rest);
    if (name == to_string(Adapter::Amd))
      adapters.push_back(Adapter::Amd);
    else if (name == to_string(Adapter::Switchtec))
      adapters.push_back(Adapter::Switchtec);
    else
      return fail(ErrorClass::Usage, "--adapter '{}': it is amd or switchtec, or a list by path",
                  text);
  }
  return adapters;
}

std::string_view to_string(Image image) {
  return image == Image::Installed ? "installed" : "usual";
}

Result<Image> parse_image(std::string_view text) {
  for (const Image image : {Image::Usual, Image::Installed})
    if (text == to_string(image)) return image;
  return fail(ErrorClass::Usage, "image '{}': it is usual or installed", text);
}

Result<DeviceString> DeviceString::parse(std::string_view text) {
  DeviceString device;
  std::string_view rest = text;
  device.driver = take_field(rest);
  if (!is_name(device.driver, "-_."))
    return fail(ErrorClass::Usage,
                "device '{}': '{}' is no driver; give it as in 'nvme,serial=a,drive-size=256M'",
                text, device.driver);
  while (!rest.empty()) {
    const std::string field = take_field(rest);
    const size_t equals = field.find('=');
    if (equals == std::string::npos || equals == 0)
      return fail(ErrorClass::Usage, "device '{}': '{}' is not PROPERTY=VALUE", text, field);
    std::string name = field.substr(0, equals);
    std::string value = field.substr(equals + 1);
    if (device.property(name) || (name == "drive-size" && device.drive_size) ||
        (name == "root-port" && device.root_port))
      return fail(ErrorClass::Usage, "device '{}': '{}' is given twice", text, name);
    if (name == "drive-size") {
      auto size = parse_size(value);
      if (!size)
        return tl::unexpected(std::move(size).error().in(fmt::format("device '{}'", text)));
      device.drive_size = *size;
      continue;
    }
    if (name == "root-port") {
      if (value != "on" && value != "off")
        return fail(ErrorClass::Usage, "device '{}': root-port is on or off, not '{}'", text,
                    value);
      device.root_port = value == "on";
      continue;
    }
    device.properties.emplace_back(std::move(name), std::move(value));
  }
  if (device.drive_size && device.property("drive"))
    return fail(ErrorClass::Usage, "device '{}': give drive or drive-size, not both", text);
  for (const char* place : {"bus", "addr"})
    if (device.root_port.value_or(false) && device.property(place))
      return fail(ErrorClass::Usage, "device '{}': give {} or root-port=on, not both", text, place);
  return device;
}

Result<ObjectString> ObjectString::parse(std::string_view text) {
  constexpr std::string_view kExample = "memory-backend-ram,id=m,size=16M";
  std::string_view rest = text;
  if (const std::string type = take_field(rest); !is_name(type, "-_."))
    return fail(ErrorClass::Usage, "object '{}': '{}' is no type; give it as in '{}'", text, type,
                kExample);
  ObjectString object{{}, std::string(text)};
  while (!rest.empty()) {
    const std::string field = take_field(rest);
    const size_t equals = field.find('=');
    if (equals == std::string::npos || equals == 0)
      return fail(ErrorClass::Usage, "object '{}': '{}' is not PROPERTY=VALUE", text, field);
    if (!field.starts_with("id=")) continue;
    if (!object.id.empty())
      return fail(ErrorClass::Usage, "object '{}': 'id' is given twice", text);
    object.id = field.substr(equals + 1);
  }
  if (object.id.empty())
    return fail(ErrorClass::Usage, "object '{}': it has no id; give it as in '{}'", text, kExample);
  return object;
}

const std::string* DeviceString::property(std::string_view name) const {
  for (const auto& [key, value] : properties)
    if (key == name) return &value;
  return nullptr;
}

std::string DeviceString::text() const {
  std::string out = driver;
  for (const auto& [name, value] : properties) {
    out += "," + name + "=";
    append_escaped(out, value);
  }
  return out;
}

Result<> Options::add_memory(std::string_view text) {
  const auto split = split_host("--memory", text, "HOST:MIB, as in host1:2048", kMaxHosts);
  if (!split) return tl::unexpected(split.error());
  const auto mib = number<int>(split->rest);
  if (!mib || *mib < kMinMemory)
    return fail(ErrorClass::Usage, "--memory '{}': '{}' is not a number of MiB, {} or more", text,
                split->rest, kMinMemory);
  memory[split->host] = *mib;
  return {};
}

Result<> Options::add_image(std::string_view text) {
  const auto split = split_host("--image", text, "HOST:IMAGE, as in host2:installed", kMaxHosts);
  if (!split) return tl::unexpected(split.error());
  const auto image = parse_image(split->rest);
  if (!image) return tl::unexpected(Error(image.error()).in(fmt::format("--image '{}'", text)));
  images[split->host] = *image;
  return {};
}

Result<> Options::add_device(std::string_view text) {
  const auto split = split_host(
      "--device", text, "HOST:DEVICE, as in host1:nvme,serial=a,drive-size=256M", kMaxHosts);
  if (!split) return tl::unexpected(split.error());
  auto device = DeviceString::parse(split->rest);
  if (!device) return tl::unexpected(device.error());
  devices.push_back({split->host, std::move(*device)});
  return {};
}

Result<> Options::add_object(std::string_view text) {
  const auto split = split_host(
      "--object", text, "HOST:OBJECT, as in host1:memory-backend-ram,id=m,size=16M", kMaxHosts);
  if (!split) return tl::unexpected(split.error());
  auto object = ObjectString::parse(split->rest);
  if (!object) return tl::unexpected(object.error());
  objects.push_back({split->host, std::move(*object)});
  return {};
}

Result<> Options::check() const {
  PCILEND_TRY(check_lab_name(name));
  if (hosts < 1 || hosts > kMaxHosts)
    return fail(ErrorClass::Usage, "--hosts {}: a lab has 1 to {} hosts", hosts, kMaxHosts);
  if (nodes() > kMaxHosts)
    return fail(ErrorClass::Usage, "--rogue: takes the place of a host: at most {} hosts with it",
                kMaxHosts - 1);
  if (paths < 1 || paths > kMaxPaths || (hosts - 1) * paths + (rogue ? 1 : 0) > kMaxAdapters)
    return fail(ErrorClass::Usage,
                "--paths {}: 1 to {}, and a host has room for {} adapters, the rogue's included",
                paths, kMaxPaths, kMaxAdapters);
  if (adapters.empty() || adapters.size() > static_cast<size_t>(paths))
    return fail(ErrorClass::Usage, "--adapter: {} kinds for --paths {}", adapters.size(), paths);
  if (!find_kernel(kernel))
    return fail(ErrorClass::Usage, "--kernel '{}': it is {}", kernel, kernel_names());
  for (const auto& [host, mib] : memory)
    if (host > hosts)
      return fail(ErrorClass::NotFound, "--memory '{}:{}': the lab has hosts host1 to {}",
                  host_name(host), mib, host_name(hosts));
  for (const auto& [host, image] : images) {
    if (host > hosts)
      return fail(ErrorClass::NotFound, "--image '{}:{}': the lab has hosts host1 to {}",
                  host_name(host), to_string(image), host_name(hosts));
    if (image == Image::Installed && !find_kernel(kernel)->installs)
      return fail(ErrorClass::Usage,
                  "--image '{}:installed': the kernel {} has no AppArmor: use another one",
                  host_name(host), kernel);
  }
  for (const DeviceOption& option : devices)
    if (option.host > hosts)
      return fail(ErrorClass::NotFound, "--device '{}:{}': the lab has hosts host1 to {}",
                  host_name(option.host), option.device.text(), host_name(hosts));
  std::set<std::pair<int, std::string>> ids;
  for (const ObjectOption& option : objects) {
    if (option.host > hosts)
      return fail(ErrorClass::NotFound, "--object '{}:{}': the lab has hosts host1 to {}",
                  host_name(option.host), option.object.text, host_name(hosts));
    const std::string& id = option.object.id;
    if (std::find(kOwnObjects.begin(), kOwnObjects.end(), id) != kOwnObjects.end())
      return fail(ErrorClass::Usage, "--object '{}:{}': the id '{}' is the lab's own",
                  host_name(option.host), option.object.text, id);
    if (!ids.insert({option.host, id}).second)
      return fail(ErrorClass::Usage, "{}: two objects have the id '{}'", host_name(option.host),
                  id);
  }
  return {};
}

Iommu Options::iommu_of(int host) const {
  const auto at = other_iommu.find(host);
  return at == other_iommu.end() ? iommu : at->second;
}

Image Options::image_of(int host) const {
  const auto at = images.find(host);
  return at == images.end() ? Image::Usual : at->second;
}

int Options::memory_of(int host) const {
  const auto at = memory.find(host);
  const Kernel* known = find_kernel(kernel);
  return (at == memory.end() ? kDefaultMemory : at->second) + (known ? known->memory : 0);
}

std::string host_name(int number) {
  return fmt::format("host{}", number);
}

std::string path_name(int host, int path) {
  return path == 1 ? host_name(host) : fmt::format("{}.{}", host_name(host), path);
}

Result<int> parse_host(std::string_view name, int hosts) {
  if (name.starts_with("host")) {
    const auto value = number<int>(name.substr(4));
    if (value && *value >= 1 && *value <= hosts && host_name(*value) == name) return *value;
  }
  return fail(ErrorClass::NotFound, "no host '{}': {} {}", name,
              hosts == kMaxHosts ? "hosts are named" : "this lab has",
              hosts == 1 ? "host1" : fmt::format("host1 to {}", host_name(hosts)));
}

Result<uint64_t> parse_size(std::string_view text) {
  constexpr std::string_view kUnits = "KMGT";
  std::string_view digits = text;
  int shift = 0;
  if (!digits.empty()) {
    const size_t unit = kUnits.find(static_cast<char>(std::toupper(digits.back())));
    if (unit != std::string_view::npos) {
      shift = 10 * (static_cast<int>(unit) + 1);
      digits.remove_suffix(1);
    }
  }
  const auto value = number<uint64_t>(digits);
  if (!value || *value == 0 || *value > (UINT64_MAX >> 1 >> shift))
    return fail(ErrorClass::Usage, "'{}' is not a size: give it as 256M or 1G", text);
  const uint64_t bytes = *value << shift;
  if (bytes % 512 != 0)
    return fail(ErrorClass::Usage, "'{}' is not a whole number of 512-byte sectors", text);
  return bytes;
}

Result<> check_lab_name(std::string_view name) {
  if (is_name(name, "-_.") && name.size() <= 32 && name.front() != '.' && name.front() != '-')
    return {};
  return fail(ErrorClass::Usage,
              "lab name '{}': use up to 32 letters, digits, '.', '_' and '-', beginning with a "
              "letter or digit",
              name);
}

}  // namespace pcilend::lab
