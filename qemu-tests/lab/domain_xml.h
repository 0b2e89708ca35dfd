// SPDX-License-Identifier: GPL-2.0-or-later
// The libvirt domain of the lab's guest.
#pragma once

#include <string>
#include <vector>

#include "pcilend/result.h"

namespace pcilend::lab {

inline constexpr int kDefaultGuestMemory = 256;  // MiB
inline constexpr int kMinGuestMemory = 128;

// Ports of the agent in a guest, and so commands that can run in it at the same time.
inline constexpr int kGuestAgentPorts = 4;

// A guest's own.
enum class GuestIommu { None, Intel, Virtio };

struct GuestSpec {
  std::string name;                  // letters, digits, '.', '_', '-'; at most 32
  int memory = kDefaultGuestMemory;  // MiB
  std::string machine = "q35";       // or "pc"
  std::string directory = "/usr/share/pcilend-lab/guest";  // of its kernel and initramfs
  std::vector<std::string> places;                         // PCI addresses of the functions it gets
  std::vector<std::string> uuids;                          // of the mediated devices it gets
  std::string kernel_arguments;  // more words for its kernel's command line
  int free_slots = 0;            // PCIe slots that devices can be plugged into; q35
  bool uefi = false;             // instead of SeaBIOS
  bool huge_pages = false;       // of the host, which must have set some aside
  bool in_file = false;          // its memory is a file of the host's, as others can map it
  int hole = 0;                  // MiB: where the PCI hole begins, if lower than the machine has it
  int pluggable = 0;             // MiB of memory that can be plugged in, as one module
  int virtio_mem = 0;            // MiB that its virtio-mem has at most; none when it starts
  int nvdimm = 0;                // MiB of an NVDIMM, which is the file nvdimm_file()
  bool balloon = false;
  GuestIommu iommu = GuestIommu::None;  // which its kernel uses; q35
  std::string devices;                  // more of them, as libvirt has them

  [[nodiscard]] Result<> check() const;
};

// In the host VM: the agent socket (and the same with ".1", ".2"… behind it), and the console's
// log.
std::string guest_agent_socket(const std::string& name);
std::string guest_console(const std::string& name);

std::string domain_xml(const GuestSpec& spec);

// In the host VM, where it must be: of a file system whose pages can be pinned.
std::string nvdimm_file(const std::string& name);

// What virsh attach-device plugs into a guest that has memory pluggable.
std::string memory_module_xml(int mib);

}  // namespace pcilend::lab
