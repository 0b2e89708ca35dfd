// SPDX-License-Identifier: GPL-2.0-or-later
// What a lab is made of, as a user or a test asks for it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/kernels.h"
#include "pcilend/result.h"

namespace pcilend::lab {

// Hosts are numbered from 1. Slots 4 to 15 of a host's bus 0 are for its NTB adapters.
inline constexpr int kMaxHosts = 13;
inline constexpr int kMaxAdapters = 12;
inline constexpr int kMaxPaths = 4;

// MiB. Less than the least, and the kernel or libvirt does not come up.
inline constexpr int kMinMemory = 512;
inline constexpr int kDefaultMemory = 1536;

enum class Iommu { Intel, Amd, Off };

std::string_view to_string(Iommu iommu);
Result<Iommu> parse_iommu(std::string_view text);

// What the NTB adapters at both ends of a link are.
enum class Adapter { Amd, Switchtec };

std::string_view to_string(Adapter adapter);
// "switchtec", or one for each path: "amd,switchtec".
Result<std::vector<Adapter>> parse_adapters(std::string_view text);

// What a host boots: the lab's quick image, or an installed Debian with systemd and its packages'
// defaults (qemu-tests/image/README.md).
enum class Image { Usual, Installed };

std::string_view to_string(Image image);
Result<Image> parse_image(std::string_view text);

// A QEMU device string for a host: DRIVER[,PROPERTY=VALUE]…, in QEMU's syntax (",," is a comma).
// Two properties are the lab's own: drive-size=SIZE (K, M, G, T; powers of 1024) is the size of the
// backing drive that the lab makes; root-port=on puts the device behind a root port of its own.
struct DeviceString {
  std::string driver;
  std::vector<std::pair<std::string, std::string>> properties;
  std::optional<uint64_t> drive_size;  // bytes
  std::optional<bool> root_port;

  static Result<DeviceString> parse(std::string_view text);

  [[nodiscard]] const std::string* property(std::string_view name) const;
  // For -device; without the lab's own properties.
  [[nodiscard]] std::string text() const;

  bool operator==(const DeviceString&) const = default;
};

struct DeviceOption {
  int host = 0;
  DeviceString device;

  bool operator==(const DeviceOption&) const = default;
};

// A QEMU object string for a host, which its devices name by the id: TYPE,id=ID[,PROPERTY=VALUE]…
struct ObjectString {
  std::string id;
  std::string text;  // for -object

  static Result<ObjectString> parse(std::string_view text);

  bool operator==(const ObjectString&) const = default;
};

struct ObjectOption {
  int host = 0;
  ObjectString object;

  bool operator==(const ObjectOption&) const = default;
};

struct Options {
  std::string name = "default";  // of the lab: letters, digits, '.', '_', '-'; at most 32
  int hosts = 2;
  std::string kernel = default_kernel();
  Iommu iommu = Iommu::Intel;
  std::map<int, Iommu> other_iommu;  // host -> IOMMU, where it is not `iommu`; see iommu_of()
  std::map<int, int> memory;         // host -> MiB; kDefaultMemory for the others; see memory_of()
  std::map<int, Image> images;       // host -> image, where it is not the usual one; see image_of()
  std::vector<DeviceOption> devices;
  std::vector<ObjectOption> objects;
  int paths = 1;                                // adapters of each host towards each other host
  std::vector<Adapter> adapters{Adapter::Amd};  // by path; the last one is that of all further
  bool rogue = false;  // every host has one more adapter, towards a rogue node
  // More words for a host's QEMU and for its kernel's command line.
  std::map<int, std::vector<std::string>> qemu_arguments;
  std::map<int, std::vector<std::string>> kernel_arguments;

  bool operator==(const Options&) const = default;

  // HOST:MIB, HOST:IMAGE, HOST:DEVICE and HOST:OBJECT as on the command line.
  Result<> add_memory(std::string_view text);
  Result<> add_image(std::string_view text);
  Result<> add_device(std::string_view text);
  Result<> add_object(std::string_view text);

  // Everything that can be known to be wrong before anything is started.
  [[nodiscard]] Result<> check() const;

  [[nodiscard]] Iommu iommu_of(int host) const;
  [[nodiscard]] Image image_of(int host) const;
  // MiB, with what the kernel takes for itself.
  [[nodiscard]] int memory_of(int host) const;
  // Nodes of the fabric: the hosts, and the rogue behind them.
  [[nodiscard]] int nodes() const { return hosts + (rogue ? 1 : 0); }
  [[nodiscard]] Adapter adapter_of(int path) const {
    return adapters.at(std::min(static_cast<size_t>(path), adapters.size()) - 1);
  }
  // Adapters towards node `peer`: the rogue has one.
  [[nodiscard]] int paths_to(int peer) const { return peer <= hosts ? paths : 1; }
};

// "host2" <-> 2. `hosts` is how many there are.
std::string host_name(int number);
Result<int> parse_host(std::string_view name, int hosts);

// "host2", or "host2.3" by the third path.
std::string path_name(int host, int path);

// The node id of a host: 4, 8, 12…
constexpr int node_id(int host) {
  return 4 * host;
}

// "256M" -> bytes.
Result<uint64_t> parse_size(std::string_view text);

Result<> check_lab_name(std::string_view name);

}  // namespace pcilend::lab
