// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/lan.h"

#include <fmt/format.h>
#include <unistd.h>

namespace pcilend::scenarios {
namespace {

std::string address(const lab::Host& host) {
  return fmt::format("10.8.0.{}", host.number());
}

// A shell's variable with its name.
Result<std::string> find_interface(const lab::Host& host) {
  const auto function = host.address("lan");
  if (!function) return tl::unexpected(function.error());
  return fmt::format("lan=$(ls /sys/bus/pci/devices/{}/virtio*/net)", *function);
}

}  // namespace

Result<> add_lan(lab::Options& options, int a, int b) {
  const std::string cable = fmt::format("addr.abstract=on,addr.path=pcilend-lan-{}", ::getpid());
  options.qemu_arguments[a] = {"-netdev", "stream,id=lan,server=on,addr.type=unix," + cable};
  options.qemu_arguments[b] = {"-netdev",
                               "stream,id=lan,server=off,reconnect-ms=500,addr.type=unix," + cable};
  for (const int number : {a, b})
    PCILEND_TRY(options.add_device(fmt::format(
        "host{0}:virtio-net-pci,id=lan,netdev=lan,mac=52:54:00:00:08:{0:02x}", number)));
  return {};
}

Result<> join_lan(const lab::Host& host) {
  const auto interface = find_interface(host);
  if (!interface) return tl::unexpected(interface.error());
  PCILEND_TRY(host.run(fmt::format("{} && ip address replace {}/24 dev $lan && ip link set $lan up",
                                   *interface, address(host))));
  PCILEND_TRY(host.run("/usr/lib/pcilend-lab/libvirt"));
  PCILEND_TRY(
      host.run("! pgrep -f '^libvirtd -d --listen' >/dev/null || exit 0; "
               "grep -q listen_tcp /etc/libvirt/libvirtd.conf || printf '%s\\n' 'listen_tls = 0' "
               "'listen_tcp = 1' 'auth_tcp = \"none\"' >>/etc/libvirt/libvirtd.conf; "
               "pkill -x libvirtd; while pgrep -x libvirtd >/dev/null; do sleep 0.1; done; "
               "libvirtd -d --listen"));
  return {};
}

Result<> plug_lan(const lab::Host& host, bool in) {
  const auto interface = find_interface(host);
  if (!interface) return tl::unexpected(interface.error());
  PCILEND_TRY(host.run(fmt::format("{} && ip link set $lan {}", *interface, in ? "up" : "down")));
  return {};
}

std::string migrate(const std::string& domain, const lab::Host& to) {
  return fmt::format(
      "timeout 120 virsh migrate --offline --persistent --undefinesource {} qemu+tcp://{}/system",
      domain, address(to));
}

}  // namespace pcilend::scenarios
