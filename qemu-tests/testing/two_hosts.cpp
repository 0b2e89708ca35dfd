// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/two_hosts.h"

namespace pcilend::scenarios {

using namespace std::chrono_literals;

void expect_nothing_mapped(const lab::Host& host) {
  const auto links = host.json("pcilend link --json");
  ASSERT_OK(links);
  for (const auto& link : links->at("links")) {
    EXPECT_EQ(link.at("export_bytes"), 0) << "BARs still exported by " << host.name();
    EXPECT_EQ(link.at("slot_bytes"), 0) << "guest memory still mapped on " << host.name();
    EXPECT_EQ(link.at("bad_messages"), 0)
        << host.name() << ": "
        << host.run("dmesg | grep 'link to node\\|control message'").value_or("");
  }
}

Result<> reload_pcilend(const lab::Host& host, const std::string& parameters) {
  PCILEND_TRY(host.run("rmmod pcilend_mdev pcilend_shadow pcilend"));
  PCILEND_TRY(host.run(fmt::format("modprobe pcilend node={} {}", host.node(), parameters)));
  PCILEND_TRY(host.run("modprobe -a pcilend_shadow pcilend_mdev"));
  return {};
}

std::optional<lab::Lab> TwoHosts::lab_;
std::optional<RomFile> TwoHosts::rom_;

Result<> TwoHosts::make_rom() {
  if (rom_) return {};
  auto file = RomFile::make(nvme_rom());
  if (!file) return tl::unexpected(file.error());
  rom_.emplace(std::move(*file));
  return {};
}

void TwoHosts::SetUpTestSuite() {
  lab::Options options;
  options.name = "scenarios";
  ASSERT_OK(make_rom());
  static const auto no_image = RomFile::make(std::string(kRomBarBytes, 'x'));
  ASSERT_OK(no_image);
  for (const std::string& device :
       {fmt::format("nvme,id=nvme,serial={},drive-size=128M,romfile={}{}", kSerial, rom().path(),
                    kNoShadowDoorbells),
        fmt::format("nec-usb-xhci,id=msix,msi=off,msix=on,root-port=on,romfile={}",
                    no_image->path()),
        std::string("nec-usb-xhci,id=msi,msi=on,msix=off,root-port=on"),
        std::string("pcie-root-port,id=socket,chassis=1")})
    ASSERT_OK(options.add_device("host1:" + device));
  ASSERT_OK(start_lab(options, lab_));
}

void TwoHosts::TearDownTestSuite() {
  EXPECT_OK(end_lab(lab_));
}

void TwoHosts::SetUp() {
  ASSERT_TRUE(lab_) << "the lab did not start";
  start_ = std::chrono::steady_clock::now();
  const auto address = lender().address(0);
  ASSERT_OK(address);
  ASSERT_OK(lender().mark_log());
  ASSERT_OK(borrower().mark_log());
  job_.emplace(lender(), borrower(), *address, "guest");
}

void TwoHosts::TearDown() {
  if (!lab_) return;
  EXPECT_OK(job().clean_up());
  expect_nothing_left();
  EXPECT_OK(lender().check_log(expected_));
  EXPECT_OK(borrower().check_log(expected_));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start_;
  fmt::print(stderr, "-- {} took {:.1f} s\n",
             testing::UnitTest::GetInstance()->current_test_info()->name(), took.count());
}

void TwoHosts::expect_nothing_left() const {
  for (const auto* host : {&lender(), &borrower()}) expect_nothing_mapped(*host);
  const auto left = borrower().run(
      "find /sys/bus/mdev/devices/ /run/pcilend/domains/ -mindepth 1 2>/dev/null || true");
  ASSERT_OK(left);
  EXPECT_EQ(*left, "") << "mdevs, or the hook's records, left on the borrower";
}

}  // namespace pcilend::scenarios
