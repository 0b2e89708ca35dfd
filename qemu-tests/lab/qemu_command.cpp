// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/qemu_command.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace pcilend::lab {
namespace {

// Milliseconds that QEMU waits for the fabric, which itself answers within one second: a reply
// after this would end the connection for good.
constexpr int kAdapterTimeout = 20'000;

// The model with what nested guests need, and without what TCG can't do and would warn of.
constexpr const char* kCpu = "EPYC,+svm,-fxsr-opt,-misalignsse,-osvw,-topoext,-nrip-save,-xsavec";

// A value inside an option string.
std::string escaped(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == ',') out.push_back(',');
    out.push_back(c);
  }
  return out;
}

std::string kernel_line(const Options& options, int host, uint64_t tsc_khz) {
  // A panicked host stays so: its devices go on, and a scenario decides when it comes back.
  // no_timer_check: the emulated timer's interrupt is lost under AMD's interrupt remapping, and
  // comes too late on a busy machine.
  std::string line =
      "console=ttyS0 loglevel=5 mitigations=off nokaslr no_timer_check unknown_nmi_panic ";
  line += kQuickBoot;
  if (options.iommu_of(host) == Iommu::Intel) line += " intel_iommu=on";
  // A device model that waits for the NTB keeps its host's CPU from everything else, heartbeats
  // too: leases must outlast the longest command of a lent device.
  line += fmt::format(" lab.host={} lab.node={} pcilend.lease_ms=30000", host_name(host),
                      node_id(host));
  // On a busy machine the kernel measures the rate up to ten times too low, or distrusts it.
  line += fmt::format(" tsc=reliable tsc_early_khz={}", tsc_khz);
  if (const Kernel* kernel = find_kernel(options.kernel)) line += kernel->arguments;
  if (const auto more = options.kernel_arguments.find(host); more != options.kernel_arguments.end())
    line += fmt::format(" {}", fmt::join(more->second, " "));
  return line;
}

class Command {
 public:
  void add(std::string word) { words_.push_back(std::move(word)); }
  void add(std::string option, std::string value) {
    words_.push_back(std::move(option));
    words_.push_back(std::move(value));
  }
  std::vector<std::string> words() && { return std::move(words_); }

 private:
  std::vector<std::string> words_;
};

void add_iommu(Command& command, Iommu iommu) {
  if (iommu == Iommu::Intel) command.add("-device", "intel-iommu,intremap=on,caching-mode=on");
  if (iommu == Iommu::Amd) command.add("-device", "amd-iommu,dma-remap=on,intremap=on");
}

void add_agent_ports(Command& command, const std::string& socket) {
  command.add("-device", fmt::format("virtio-serial-pci,id=agent,max_ports={},addr={:x}.0",
                                     kAgentPorts + 1, kSerialSlot));
  for (int port = 0; port < kAgentPorts; ++port) {
    const std::string suffix = port == 0 ? "" : fmt::format(".{}", port);
    command.add("-chardev", fmt::format("socket,id=agent{},path={},server=on,wait=off", port,
                                        escaped(socket + suffix)));
    command.add("-device",
                fmt::format("virtserialport,bus=agent.0,nr={},chardev=agent{},name=pcilend.agent{}",
                            port + 1, port, suffix));
  }
}

// @shares_slot: other functions stand beside it.
void add_adapter(Command& command, Adapter adapter, int slot, bool shares_slot,
                 const std::string& socket) {
  nlohmann::ordered_json device = {
      {"driver", "vfio-user-pci"},
      {"addr", fmt::format("{:x}.0", slot)},
      {"rombar", 0},
      {"socket", {{"path", socket}, {"type", "unix"}}},
      {"x-msg-timeout", kAdapterTimeout},
  };
  if (shares_slot) device["multifunction"] = true;
  // Its peer's requesters appear as functions of its bus: nothing else may be on that.
  if (adapter == Adapter::Switchtec) {
    const std::string port = fmt::format("adapter-port{}", slot);
    command.add("-device",
                fmt::format("pcie-root-port,id={},addr={:x}.0,chassis={}", port, slot, slot));
    device["id"] = adapter_id(slot);
    device["bus"] = port;
    device["addr"] = "0.0";
  }
  command.add("-device", device.dump());
}

void add_drive(Command& command, const std::string& id, const std::string& file,
               const std::string& format) {
  command.add("-drive", fmt::format("file={},if=none,id={},format={},cache=unsafe,discard=unmap",
                                    escaped(file), id, format));
}

}  // namespace

std::vector<std::string> qemu_command(const Options& options, int host, const QemuFiles& files,
                                      uint64_t tsc_khz, const Layout& layout,
                                      const std::vector<PlacedDevice>& devices) {
  const int memory = options.memory_of(host);
  Command command;
  command.add(files.qemu);
  command.add("-name", fmt::format("{}.{}", options.name, host_name(host)));
  command.add("-machine", "q35,memory-backend=memory,sata=off,smbus=off");
  command.add("-accel", "tcg,thread=multi");
  command.add("-cpu", kCpu);
  command.add("-smp", "1");
  command.add("-m", fmt::format("{}M", memory));
  command.add("-object", fmt::format("memory-backend-memfd,id=memory,size={}M,share=on", memory));
  command.add("-nodefaults");
  command.add("-no-user-config");
  command.add("-display", "none");
  command.add("-chardev", fmt::format("socket,id=monitor,path={},server=on,wait=off",
                                      escaped(layout.qmp(host))));
  command.add("-object", "monitor-qmp,id=qmp,chardev=monitor");
  command.add("-chardev",
              fmt::format("file,id=console,path={},append=on", escaped(layout.console(host))));
  command.add("-serial", "chardev:console");
  // The IOMMU stands first: devices before it would not be behind it.
  add_iommu(command, options.iommu_of(host));
  add_drive(command, "root", layout.root_overlay(host), "qcow2");
  command.add("-device", fmt::format("virtio-blk-pci,drive=root,addr={:x}.0", kRootSlot));
  add_agent_ports(command, layout.agent(host));
  for (int peer = 1; peer <= options.nodes(); ++peer)
    for (int path = 1; peer != host && path <= options.paths_to(peer); ++path) {
      const int slot = adapter_slot(host, peer, path, options.paths);
      const std::string beside = fmt::format("{:02x}.", slot);
      const bool shares = std::any_of(devices.begin(), devices.end(), [&](const auto& device) {
        return device.slot && device.slot->starts_with(beside);
      });
      add_adapter(command, options.adapter_of(path), slot, shares,
                  layout.adapter(host, peer, path));
    }
  for (const ObjectOption& option : options.objects)
    if (option.host == host) command.add("-object", option.object.text);
  for (const PlacedDevice& device : devices) {
    if (device.port) command.add("-device", *device.port);
    if (device.drive) add_drive(command, device.drive->id, device.drive->file, "raw");
    command.add("-device", device.argument);
  }
  command.add("-kernel", files.kernel);
  command.add("-initrd", files.initrd);
  command.add("-append", kernel_line(options, host, tsc_khz));
  if (const auto more = options.qemu_arguments.find(host); more != options.qemu_arguments.end())
    for (const std::string& word : more->second) command.add(word);
  return std::move(command).words();
}

}  // namespace pcilend::lab
