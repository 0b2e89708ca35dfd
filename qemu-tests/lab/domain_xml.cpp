// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/domain_xml.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "lab/kernels.h"
#include "lab/options.h"

namespace pcilend::lab {

namespace {

struct Place {
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned slot = 0;
  unsigned function = 0;
};

// Of "8004:01:00.0".
std::optional<Place> parse_place(const std::string& text) {
  Place place;
  int end = 0;
  if (std::sscanf(text.c_str(), "%4x:%2x:%2x.%1x%n", &place.domain, &place.bus, &place.slot,
                  &place.function, &end) != 4 ||
      static_cast<size_t>(end) != text.size())
    return {};
  return place;
}

}  // namespace

Result<> GuestSpec::check() const {
  if (auto valid = check_lab_name(name); !valid)
    return fail(ErrorClass::Usage,
                "guest name '{}': use up to 32 letters, digits, '.', '_' and '-', beginning with a "
                "letter or digit",
                name);
  if (memory < kMinGuestMemory)
    return fail(ErrorClass::Usage, "--memory {}: the guest needs {} MiB or more", memory,
                kMinGuestMemory);
  if (machine != "q35" && machine != "pc")
    return fail(ErrorClass::Usage, "--machine '{}': it is q35 or pc", machine);
  if (iommu != GuestIommu::None && machine != "q35")
    return fail(ErrorClass::Usage, "a guest with an IOMMU is a q35, not a {}", machine);
  if (hole < 0 || pluggable < 0 || virtio_mem < 0 || nvdimm < 0)
    return fail(ErrorClass::Failure, "memory of less than 0 MiB: {}, {}, {}, {}", hole, pluggable,
                virtio_mem, nvdimm);
  if (huge_pages && in_file)
    return fail(ErrorClass::Usage, "a guest's memory is in huge pages, or in a file");
  for (const std::string& uuid : uuids)
    if (uuid.empty() || uuid.find_first_not_of("0123456789abcdefABCDEF-") != std::string::npos)
      return fail(ErrorClass::Failure, "'{}' is not a UUID", uuid);
  for (const std::string& place : places)
    if (!parse_place(place)) return fail(ErrorClass::Failure, "'{}' is not a PCI address", place);
  return {};
}

std::string guest_agent_socket(const std::string& name) {
  return fmt::format("/run/pcilend-lab/guests/{}.sock", name);
}

std::string nvdimm_file(const std::string& name) {
  return fmt::format("/var/lib/libvirt/qemu/ram/{}.nvdimm", name);
}

std::string guest_console(const std::string& name) {
  return fmt::format("/var/log/pcilend-lab-guest-{}.log", name);
}

namespace {

// Its variables are in memory, and gone when the guest is off.
constexpr const char* kUefi = "    <loader type='rom'>/usr/share/ovmf/OVMF.fd</loader>\n";

// libvirt plugs memory into a NUMA node.
bool has_numa(const GuestSpec& spec) {
  return spec.pluggable || spec.virtio_mem || spec.nvdimm;
}

std::string memory_xml(const GuestSpec& spec) {
  std::string memory;
  if (has_numa(spec))
    memory += fmt::format("  <maxMemory slots='1' unit='MiB'>{}</maxMemory>\n",
                          spec.memory + spec.pluggable + spec.virtio_mem + spec.nvdimm);
  memory += fmt::format("  <memory unit='MiB'>{}</memory>\n", spec.memory);
  if (spec.huge_pages)
    memory +=
        "  <memoryBacking>\n"
        "    <hugepages/>\n"
        "  </memoryBacking>\n";
  if (spec.in_file)
    memory +=
        "  <memoryBacking>\n"
        "    <source type='file'/>\n"
        "    <access mode='shared'/>\n"
        "  </memoryBacking>\n";
  return memory;
}

std::string cpu_xml(const GuestSpec& spec) {
  if (!has_numa(spec)) return "  <cpu mode='maximum'/>\n";
  return fmt::format(
      "  <cpu mode='maximum'>\n"
      "    <numa>\n"
      "      <cell id='0' cpus='0' memory='{}' unit='MiB'/>\n"
      "    </numa>\n"
      "  </cpu>\n",
      spec.memory);
}

std::string virtio_mem_xml(int mib) {
  return fmt::format(
      "    <memory model='virtio-mem'>\n"
      "      <target>\n"
      "        <size unit='MiB'>{}</size>\n"
      "        <node>0</node>\n"
      "        <block unit='MiB'>2</block>\n"
      "        <requested unit='MiB'>0</requested>\n"
      "      </target>\n"
      "    </memory>\n",
      mib);
}

std::string nvdimm_xml(const GuestSpec& spec) {
  return fmt::format(
      "    <memory model='nvdimm' access='shared'>\n"
      "      <source>\n"
      "        <path>{}</path>\n"
      "      </source>\n"
      "      <target>\n"
      "        <size unit='MiB'>{}</size>\n"
      "        <node>0</node>\n"
      "      </target>\n"
      "    </memory>\n",
      nvdimm_file(spec.name), spec.nvdimm);
}

std::string command_line_xml(const GuestSpec& spec) {
  if (!spec.hole) return {};
  return fmt::format(
      "  <qemu:commandline>\n"
      "    <qemu:arg value='-machine'/>\n"
      "    <qemu:arg value='max-ram-below-4g={}M'/>\n"
      "  </qemu:commandline>\n",
      spec.hole);
}

std::string arguments_of(const GuestSpec& spec) {
  std::string arguments = spec.kernel_arguments;
  if (spec.iommu == GuestIommu::Intel) arguments += " intel_iommu=on";
  // Its ACPI has no register for that, and a kernel waits for the keyboard controller that there is
  // none of: for minutes, on a busy machine, before it takes what every PC chipset has.
  if (spec.machine == "pc") arguments += " reboot=pci";
  return arguments;
}

}  // namespace

std::string memory_module_xml(int mib) {
  return fmt::format(
      "<memory model='dimm'>\n"
      "  <target>\n"
      "    <size unit='MiB'>{}</size>\n"
      "    <node>0</node>\n"
      "  </target>\n"
      "</memory>\n",
      mib);
}

std::string domain_xml(const GuestSpec& spec) {
  std::string devices;
  for (int port = 0; port < kGuestAgentPorts; ++port) {
    const std::string suffix = port == 0 ? "" : fmt::format(".{}", port);
    devices += fmt::format(
        "    <channel type='unix'>\n"
        "      <source mode='bind' path='{}{}'/>\n"
        "      <target type='virtio' name='pcilend.agent{}'/>\n"
        "    </channel>\n",
        guest_agent_socket(spec.name), suffix, suffix);
  }
  // Each device of the XML gets a root port of its own; these are beyond.
  for (int slot = 0; slot < spec.free_slots; ++slot)
    devices +=
        fmt::format("    <controller type='pci' index='{}' model='pcie-root-port'/>\n", 20 + slot);
  for (const std::string& text : spec.places) {
    const Place place = parse_place(text).value_or(Place());
    devices += fmt::format(
        "    <hostdev mode='subsystem' type='pci' managed='no'>\n"
        "      <source>\n"
        "        <address domain='{:#06x}' bus='{:#04x}' slot='{:#04x}' function='{:#x}'/>\n"
        "      </source>\n"
        "    </hostdev>\n",
        place.domain, place.bus, place.slot, place.function);
  }
  for (const std::string& uuid : spec.uuids)
    devices += fmt::format(
        "    <hostdev mode='subsystem' type='mdev' model='vfio-pci'>\n"
        "      <source>\n"
        "        <address uuid='{}'/>\n"
        "      </source>\n"
        "    </hostdev>\n",
        uuid);
  if (spec.iommu == GuestIommu::Intel)
    devices +=
        "    <iommu model='intel'>\n"
        "      <driver caching_mode='on'/>\n"
        "    </iommu>\n";
  if (spec.iommu == GuestIommu::Virtio) devices += "    <iommu model='virtio'/>\n";
  if (spec.virtio_mem) devices += virtio_mem_xml(spec.virtio_mem);
  if (spec.nvdimm) devices += nvdimm_xml(spec);
  devices += spec.devices;
  // Without that capability libvirt does not ask QEMU for each of 400 CPU properties, one message
  // each: two thirds of the time that virsh start takes here. With a HPET, which virt-install
  // leaves out as well, QEMU wakes up 250 times a second, and a boot takes twice the CPU time.
  return fmt::format(
      R"(<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>{name}</name>
{memory}  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='{machine}'>hvm</type>
{firmware}    <kernel>{directory}/{kernel}</kernel>
    <initrd>{directory}/initrd</initrd>
    <cmdline>console=ttyS0 loglevel=5 mitigations=off mce=off nokaslr panic=-1 pci=lastbus=0 {quick}{arguments}</cmdline>
  </os>
  <features>
    <acpi/>
    <apic/>
    <ps2 state='off'/>
  </features>
  <clock offset='utc'>
    <timer name='hpet' present='no'/>
  </clock>
{cpu}  <on_poweroff>destroy</on_poweroff>
  <on_reboot>restart</on_reboot>
  <on_crash>destroy</on_crash>
  <devices>
    <serial type='file'>
      <source path='{console}' append='on'/>
    </serial>
    <controller type='usb' model='none'/>
    <memballoon model='{balloon}'/>
{devices}  </devices>
  <qemu:capabilities>
    <qemu:del capability='cpu-unavailable-features'/>
  </qemu:capabilities>
{command_line}</domain>
)",
      fmt::arg("name", spec.name), fmt::arg("memory", memory_xml(spec)),
      fmt::arg("firmware", spec.uefi ? kUefi : ""),
      fmt::arg("kernel", spec.uefi ? "vmlinuz" : "vmlinux"), fmt::arg("cpu", cpu_xml(spec)),
      fmt::arg("balloon", spec.balloon ? "virtio" : "none"),
      fmt::arg("command_line", command_line_xml(spec)), fmt::arg("machine", spec.machine),
      fmt::arg("arguments", arguments_of(spec)), fmt::arg("directory", spec.directory),
      fmt::arg("quick", kQuickBoot), fmt::arg("console", guest_console(spec.name)),
      fmt::arg("devices", devices));
}

}  // namespace pcilend::lab
