// SPDX-License-Identifier: GPL-2.0-or-later
#include "scenarios/devices/device_matrix.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cassert>
#include <functional>
#include <regex>

#include "testing/echo_server.h"

namespace pcilend::scenarios {
namespace {

constexpr unsigned kFirstPortSlot = 0x10;

// Device models that map guest memory get a copy of what is behind an NTB. By default these may
// have a page in all, and a model that can't have more gives up (virtio).
constexpr const char* kBounce = "x-max-bounce-buffer-size=16M";

// The driver of vmxnet3 unmaps its table of multicast addresses as soon as it has told the function
// to read it, by a write that a hypervisor would have carried out by then.
std::vector<std::string> late_reads() {
  return {"DMAR: DRHD: handling fault status reg",
          R"(DMAR: \[DMA Read NO_PASID\] Request device \[(0000:)?00:04\.0\])"};
}

// Debian's 7.2 checks arrays' bounds, and mptsas declares one with one element that has more.
std::vector<std::string> old_arrays() {
  return {R"(UBSAN: array-index-out-of-bounds in \S+/drivers/message/fusion/mptsas\.c)",
          "Call Trace:"};
}

}  // namespace

const std::vector<MatrixFunction>& matrix_functions() {
  using enum Workload;
  static const std::vector<MatrixFunction> functions = {
      {"nvme", "nvme,serial=matrix,drive-size=16M", Disk, "nvme", {}, ""},
      {"e1000e", "e1000e,netdev=e1000e", Network, "e1000e", {}, ""},
      {"igb", "igb,netdev=igb", Network, "igb", {}, "", true, {}, true},
      {"vmxnet3", "vmxnet3,netdev=vmxnet3", Network, "vmxnet3", {}, "", true, late_reads()},
      {"virtio-net",
       "virtio-net-pci,netdev=virtio-net,iommu_platform=on,disable-legacy=on",
       Network,
       "virtio-pci",
       {},
       ""},
      {"virtio-blk",
       "virtio-blk-pci,iommu_platform=on,disable-legacy=on,drive-size=16M",
       Disk,
       "virtio-pci",
       {},
       ""},
      {"edu", "edu", Registers, "", {}, ""},
      {"i6300esb", "i6300esb", Watchdog, "i6300ESB timer", {}, ""},
      // Without a name (WWN) of its own its driver does not take the disk.
      {"mptsas",
       "mptsas1068",
       Disk,
       "mptsas",
       {"scsi-hd,bus=mptsas.0,drive-size=16M,wwn=0x5000c50015ea71ac"},
       "",
       true,
       old_arrays()},
      {"e1000", "e1000,netdev=e1000", Network, "e1000", {}, ""},
      {"rtl8139", "rtl8139,netdev=rtl8139", Network, "8139cp", {}, ""},
      {"ehci", "ich9-usb-ehci1", Disk, "ehci-pci", {"usb-storage,bus=ehci.0,drive-size=16M"}, ""},
      {"serial",
       "pci-serial,chardev=serial",
       Binding,
       "serial",
       {},
       "all its registers are behind I/O BARs"},
      {"bus0", "i6300esb", Binding, "i6300ESB timer", {}, "it has no way to be reset", false},
  };
  return functions;
}

const MatrixFunction& matrix_function(std::string_view name) {
  const auto& all = matrix_functions();
  const auto found = std::find_if(all.begin(), all.end(), [&](const MatrixFunction& function) {
    return function.name == name;
  });
  assert(found != all.end());
  return *found;
}

namespace {

Result<lab::Options> options_with(const std::function<bool(const MatrixFunction&)>& wanted) {
  lab::Options options;
  options.name = "matrix";
  PCILEND_TRY(add_wire(options));
  auto& arguments = options.qemu_arguments[1];
  arguments.insert(arguments.end(), {"-chardev", "null,id=serial"});

  unsigned port = 0;
  for (const MatrixFunction& function : matrix_functions()) {
    if (!wanted(function)) continue;
    std::string place;
    if (function.workload == Workload::Network) attach_to_wire(options, function.name);
    if (function.port) {
      PCILEND_TRY(options.add_device(
          fmt::format("host1:pcie-root-port,id=port{},chassis={},multifunction=on,addr={:x}.{}",
                      port, port + 1, kFirstPortSlot + port / 8, port % 8)));
      place = fmt::format(",bus=port{}", port++);
    }
    PCILEND_TRY(options.add_device(
        fmt::format("host1:{},id={},{}{}", function.device, function.name, kBounce, place)));
    for (const std::string& further : function.further)
      PCILEND_TRY(options.add_device("host1:" + further));
  }
  return options;
}

// "Standard/DeviceMatrix.IsLentOrRefused/e1000e" names its function; others want this one.
constexpr std::string_view kOfOtherSuites = "e1000";

bool is_of_this_run(const MatrixFunction& function) {
  if (function.name == kOfOtherSuites) return true;
  const auto& tests = *testing::UnitTest::GetInstance();
  for (int i = 0; i < tests.total_test_suite_count(); ++i) {
    const auto& suite = *tests.GetTestSuite(i);
    if (!std::string_view(suite.name()).ends_with("DeviceMatrix")) continue;
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const auto& test = *suite.GetTestInfo(j);
      if (test.should_run() && std::string_view(test.name()).ends_with("/" + test_name(function)))
        return true;
    }
  }
  return false;
}

}  // namespace

std::string test_name(const MatrixFunction& function) {
  std::string name = function.name;
  std::ranges::replace(name, '-', '_');
  return name;
}

Result<lab::Options> matrix_options() {
  return options_with([](const MatrixFunction&) { return true; });
}

Result<lab::Options> matrix_options_of_this_run() {
  return options_with(is_of_this_run);
}

FunctionTraits parse_traits(const std::string& lspci) {
  static const std::regex bar(
      R"((Memory|I/O ports) at [0-9a-f]+ (\((32|64)-bit[^)]*\) )?(\[[a-z]+\] )?\[size=(\w+)\])");
  std::vector<std::string> bars;
  for (std::sregex_iterator at(lspci.begin(), lspci.end(), bar), end; at != end; ++at) {
    const std::string size = (*at)[5];
    if ((*at)[1] == "I/O ports")
      bars.push_back("I/O " + size);
    else
      bars.push_back(size + ((*at)[3] == "64" ? " 64-bit" : ""));
  }
  const auto has = [&lspci](const char* text) { return lspci.find(text) != std::string::npos; };
  return {has("MSI-X:")  ? "MSI-X"
          : has("MSI:")  ? "MSI"
          : has(", IRQ") ? "INTx"
                         : "none",
          fmt::format("{}", fmt::join(bars, ", "))};
}

std::string table_of(const std::vector<MatrixRow>& rows) {
  std::string text =
      "| function | kernel | interrupts | BARs | result | why |\n"
      "| --- | --- | --- | --- | --- | --- |\n";
  for (const MatrixRow& row : rows)
    text += fmt::format("| {} | {} | {} | {} | {} | {} |\n", row.name, row.kernel,
                        row.traits.interrupts, row.traits.bars, row.result, row.why);
  return text;
}

}  // namespace pcilend::scenarios
