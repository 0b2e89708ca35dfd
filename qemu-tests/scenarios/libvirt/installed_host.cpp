// SPDX-License-Identifier: GPL-2.0-or-later
#include "scenarios/libvirt/installed_host.h"

#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

// libvirt adds this to the memory of a guest with VFIO devices.
constexpr uint64_t kForDevices = uint64_t{1} << 30;

std::string text_of(const lab::Host& host, const std::string& command) {
  const auto output = host.run(command);
  EXPECT_OK(output);
  return output ? output->substr(0, output->find('\n')) : "";
}

}  // namespace

std::optional<lab::Lab> OnInstalledHost::lab_;

void OnInstalledHost::SetUpTestSuite() {
  lab::Options options;
  options.name = "installed";
  options.hosts = 3;
  ASSERT_OK(options.add_image("host2:installed"));
  ASSERT_OK(options.add_memory("host2:2560"));
  for (const char* id : {"a", "b"})
    ASSERT_OK(options.add_device(
        fmt::format("host1:nvme,id={0},serial={0},drive-size=64M{1}", id, kNoShadowDoorbells)));
  ASSERT_OK(options.add_device("host2:nvme,id=c,serial=c,drive-size=16M"));
  ASSERT_OK(start_lab(options, lab_));
  // What AppArmor denies is in the kernel's log, all of it, also after the next boot.
  ASSERT_OK(
      host().run("echo kernel.printk_ratelimit=0 >/etc/sysctl.d/pcilend-lab.conf && "
                 "sysctl -q -p /etc/sysctl.d/pcilend-lab.conf"));
  for (const lab::Host* borrower : {&host(), &other()})
    ASSERT_OK(lender().run(fmt::format("pcilend connect {}", borrower->node())));
}

void OnInstalledHost::TearDownTestSuite() {
  EXPECT_OK(end_lab(lab_));
}

void OnInstalledHost::SetUp() {
  ASSERT_TRUE(lab_) << "the lab did not start";
  start_ = std::chrono::steady_clock::now();
  for (int number = 1; number <= lab_->hosts(); ++number) ASSERT_OK(lab_->host(number).mark_log());
}

void OnInstalledHost::TearDown() {
  if (!lab_) return;
  for (int number = 1; number <= lab_->hosts(); ++number) EXPECT_OK(lab_->host(number).check_log());
  for (const lab::Host* one : {&lender(), &host()}) expect_nothing_mapped(*one);
  const auto left = host().run(
      "find /sys/bus/mdev/devices/ /run/pcilend/domains/ /etc/mdevctl.d/ -mindepth 1 ! -type d "
      "2>/dev/null || true");
  ASSERT_OK(left);
  EXPECT_EQ(*left, "") << "mediated devices, their definitions, or the hook's records";
  // Of QEMU, of the hook that libvirtd runs, and of libvirtd itself.
  const auto denied = host().run("dmesg | grep 'apparmor=\"DENIED\"' || true");
  ASSERT_OK(denied);
  EXPECT_EQ(*denied, "") << "AppArmor has denied something";
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start_;
  fmt::print(stderr, "-- {} took {:.1f} s\n",
             testing::UnitTest::GetInstance()->current_test_info()->name(), took.count());
}

void OnInstalledHost::expect_debians_defaults(const std::string& domain, int memory) {
  const std::string process =
      "/proc/" + text_of(host(), fmt::format("cat /run/libvirt/qemu/{}.pid", domain));
  const std::string user = text_of(host(), "id -u libvirt-qemu");
  EXPECT_EQ(
      text_of(host(), fmt::format("awk '/^Uid:/ {{ print $2, $3, $4, $5 }}' {}/status", process)),
      fmt::format("{0} {0} {0} {0}", user));
  EXPECT_EQ(text_of(host(), fmt::format("cat {}/attr/current", process)),
            fmt::format("libvirt-{} (enforce)",
                        text_of(host(), fmt::format("virsh domuuid {}", domain))));
  EXPECT_EQ(text_of(host(), fmt::format("awk '/^Max locked memory/ {{ print $4, $5 }}' {}/limits",
                                        process)),
            fmt::format("{0} {0}", (static_cast<uint64_t>(memory) << 20) + kForDevices));
  // libvirtd is systemd's, and its own configuration is the package's.
  EXPECT_EQ(text_of(host(), "systemctl is-active libvirtd.socket"), "active");
  EXPECT_EQ(text_of(host(), "ps -o ppid= -C libvirtd | tr -d ' '"), "1");
  EXPECT_EQ(text_of(host(),
                    "dpkg -V libvirt-daemon-driver-qemu libvirt-daemon-system apparmor | "
                    "grep /etc/ || echo unchanged"),
            "unchanged");
}

}  // namespace pcilend::scenarios
