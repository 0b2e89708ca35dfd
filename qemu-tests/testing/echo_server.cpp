// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/echo_server.h"

#include <fmt/format.h>

namespace pcilend::scenarios {

using namespace std::chrono_literals;

namespace {

constexpr int kPort = 7;

}  // namespace

void attach_to_wire(lab::Options& options, const std::string& id) {
  auto& arguments = options.qemu_arguments[1];
  arguments.insert(arguments.end(), {"-netdev", fmt::format("hubport,id={},hubid=0", id)});
}

Result<> add_wire(lab::Options& options) {
  attach_to_wire(options, "wire");
  return options.add_device("host1:virtio-net-pci,id=wire,netdev=wire");
}

Result<lab::Running> start_echo_server(const lab::Host& lender) {
  const auto wire = lender.address("wire");
  if (!wire) return tl::unexpected(wire.error());
  PCILEND_TRY(
      lender.run(fmt::format("wire=$(ls /sys/bus/pci/devices/{}/virtio*/net) && "
                             "ip address replace {}/24 dev $wire && ip link set $wire up",
                             *wire, kEchoServer)));
  return lender.start(fmt::format("busybox nc -ll -p {} -e cat", kPort), {{}, 30min});
}

std::string send_around(unsigned kibibytes) {
  return fmt::format(
      "head -c {0} /dev/urandom >/tmp/data && "
      "busybox nc -w 120 {1} {2} </tmp/data | head -c {0} | cmp - /tmp/data",
      1024 * kibibytes, kEchoServer, kPort);
}

}  // namespace pcilend::scenarios
