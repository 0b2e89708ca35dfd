// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/domain_xml.h"

#include <algorithm>

#include "lab/options.h"

namespace pcilend::lab {

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
  for (const std::string& uuid : uuids)
    if (uuid.empty() || uuid.find_first_not_of("0123456789abcdefABCDEF-") != std::string::npos)
      return fail(ErrorClass::Failure, "'{}' is not a UUID", uuid);
  return {};
}

std::string guest_agent_socket(const std::string& name) {
  return fmt::format("/run/pcilend-lab/guests/{}.sock", name);
}

std::string guest_console(const std::string& name) {
  return fmt::format("/var/log/pcilend-lab-guest-{}.log", name);
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
  for (const std::string& uuid : spec.uuids)
    devices += fmt::format(
        "    <hostdev mode='subsystem' type='mdev' model='vfio-pci'>\n"
        "      <source>\n"
        "        <address uuid='{}'/>\n"
        "      </source>\n"
        "    </hostdev>\n",
        uuid);
  // Without that capability libvirt does not ask QEMU for each of 400 CPU properties, one message
  // each: two thirds of the time that virsh start takes here.
  return fmt::format(R"(<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>{name}</name>
  <memory unit='MiB'>{memory}</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='{machine}'>hvm</type>
    <kernel>/usr/share/pcilend-lab/guest/vmlinux</kernel>
    <initrd>/usr/share/pcilend-lab/guest/initrd</initrd>
    <cmdline>console=ttyS0 loglevel=5 mitigations=off mce=off nokaslr panic=-1{arguments}</cmdline>
  </os>
  <features>
    <acpi/>
    <apic/>
  </features>
  <cpu mode='maximum'/>
  <on_poweroff>destroy</on_poweroff>
  <on_reboot>restart</on_reboot>
  <on_crash>destroy</on_crash>
  <devices>
    <serial type='file'>
      <source path='{console}' append='on'/>
    </serial>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
{devices}  </devices>
  <qemu:capabilities>
    <qemu:del capability='cpu-unavailable-features'/>
  </qemu:capabilities>
</domain>
)",
                     fmt::arg("name", spec.name), fmt::arg("memory", spec.memory),
                     fmt::arg("machine", spec.machine),
                     fmt::arg("arguments", spec.kernel_arguments),
                     fmt::arg("console", guest_console(spec.name)), fmt::arg("devices", devices));
}

}  // namespace pcilend::lab
