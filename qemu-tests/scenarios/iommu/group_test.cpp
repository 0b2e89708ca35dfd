// SPDX-License-Identifier: GPL-2.0-or-later
#include <array>

#include "testing/three_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

constexpr int kDrives = 2;
constexpr std::array<const char*, kDrives> kIds = {"a", "b"};

/*
 *   host1 (node 4)                         host2 (node 8)         host3 (node 12)
 *   IOMMU group: drive a ═════════════════ guest with both        is refused either
 *                drive b ═════════════════                        while one is lent
 *
 * The drives are functions of one device without ACS: nothing keeps them apart on host1, so they
 * are lent as a set.
 */
class Group : public OnThreeHosts {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(OnThreeHosts::SetUp());
    for (int i = 0; i < kDrives; ++i) {
      const auto address = lender().address(kIds[i]);
      ASSERT_OK(address);
      address_[i] = *address;
    }
  }

  void TearDown() override {
    if (!lab_) return;
    EXPECT_OK(host(2).exec("virsh destroy both; virsh undefine both"));
    for (const char* command : {"unavailable --force", "remove"})
      for (const auto& address : address_)
        EXPECT_OK(lender().exec(fmt::format("pcilend {} {}", command, address)));
    OnThreeHosts::TearDown();
  }

  Result<nlohmann::json> function(int number, int drive) {
    return function_at(host(number), host(1), address_[drive]);
  }

  Result<> await(int number, int drive, const std::string& key, const std::string& value) {
    return lab::eventually(fmt::format("{} of {} is {}", key, address_[drive], value),
                           lab::kPatience, [&] {
                             const auto f = function(number, drive);
                             return f && f->at(key) == value;
                           });
  }

  // Both are offered to both nodes; ids_ is known.
  void lend() {
    for (const auto& address : address_) ASSERT_OK(host(1).run("pcilend add " + address));
    for (const auto& address : address_) ASSERT_OK(host(1).run("pcilend available " + address));
    for (int i = 0; i < kDrives; ++i) {
      const auto f = function(1, i);
      ASSERT_OK(f);
      ids_[i] = f->at("id");
      for (const int number : {2, 3}) ASSERT_OK(await(number, i, "state", "available"));
    }
  }

  // A guest of host2 with both drives as one device, which has found the first.
  Result<lab::Guest> start_guest() {
    auto spec = host(2).guest_spec("both", {});
    if (!spec) return tl::unexpected(spec.error());
    auto devices = host(2).run(fmt::format("pcilend vm-xml {} {}", ids_[0], ids_[1]));
    if (!devices) return tl::unexpected(devices.error());
    spec->devices = std::move(*devices);
    lab::Guest guest = host(2).guest(*spec);
    PCILEND_TRY(guest.define());
    PCILEND_TRY(guest.start());
    PCILEND_TRY(MainJob::await_disk(guest));
    return guest;
  }

  // Reads and writes of all drives at the same time; each compares what it reads.
  static Result<> use(const lab::Guest& guest, const std::vector<std::string>& disks) {
    std::vector<lab::Running> work;
    for (const auto& disk : disks) {
      auto running =
          guest.start(fmt::format("dd if=/dev/urandom of=/tmp/{0}.w bs=16k count=16 && "
                                  "dd if=/tmp/{0}.w of=/dev/{0} bs=16k oflag=direct && "
                                  "dd if=/dev/{0} of=/tmp/{0}.r bs=16k count=16 iflag=direct && "
                                  "cmp /tmp/{0}.w /tmp/{0}.r",
                                  disk),
                      {{}, 10min});
      if (!running) return tl::unexpected(running.error());
      work.push_back(std::move(*running));
    }
    for (auto& one : work) {
      const auto output = one.wait();
      if (!output) return tl::unexpected(output.error());
      if (output->code != 0) return fail(ErrorClass::Failure, "{}{}", output->out, output->err);
    }
    return {};
  }

  // Names of the guest's disks by serial number, once its driver has made them.
  static Result<std::string> disk(const lab::Guest& guest, const std::string& serial) {
    return guest.run(
        fmt::format(
            "for i in $(seq 900); do for d in /sys/block/nvme*n1; do "
            "[ \"$(tr -d ' ' <$d/device/serial)\" = {} ] && printf %s ${{d##*/}} && exit 0; done; "
            "sleep 0.1; done; exit 1",
            serial),
        {{}, 3min});
  }

  std::array<std::string, kDrives> address_;
  std::array<std::string, kDrives> ids_;
};

TEST_F(Group, TwoDrivesOfOneGroupAreLentAsASet) {
  // Not without the other one: first it must be added, then be available.
  ASSERT_OK(host(1).run("pcilend add " + address_[0]));
  expect_refused(host(1), "pcilend available " + address_[0], address_[1] + " (nvme)");
  const auto check = host(1).exec("pcilend check " + address_[0]);
  ASSERT_OK(check);
  EXPECT_NE(check->out.find("is a set: add " + address_[1] + " (nvme)"), std::string::npos)
      << check->out;
  ASSERT_OK(host(1).run("pcilend add " + address_[1]));
  // A driver of VFIO that has no user does not keep it, although its neighbour's driver is nvme.
  const std::string device = "/sys/bus/pci/devices/" + address_[0];
  ASSERT_OK(host(1).run(fmt::format(
      "modprobe vfio-pci && echo vfio-pci >{0}/driver_override && echo {1} >{0}/driver/unbind && "
      "echo {1} >/sys/bus/pci/drivers_probe && echo >{0}/driver_override && "
      "[ $(basename $(readlink {0}/driver)) = vfio-pci ]",
      device, address_[0])));
  ASSERT_OK(host(1).run("pcilend available " + address_[0]));
  const auto first = function(1, 0);
  ASSERT_OK(first);
  ids_[0] = first->at("id");
  EXPECT_EQ(first->at("group_members").at(0).at("bdf"), address_[1]);
  EXPECT_EQ(first->at("group_members").at(0).at("state"), "added");
  ASSERT_OK(await(2, 0, "state", "available"));
  expect_refused(host(2), "pcilend borrow --frontend vfio " + ids_[0], "are not available");
  expect_refused(host(1), "pcilend remove " + address_[0], "unavailable");
  ASSERT_OK(host(1).run("pcilend available " + address_[1]));
  const auto second = function(1, 1);
  ASSERT_OK(second);
  ids_[1] = second->at("id");
  for (const int number : {2, 3}) ASSERT_OK(await(number, 1, "state", "available"));

  // Who has one, has them all.
  ASSERT_OK(host(2).run("pcilend borrow --frontend vfio " + ids_[0]));
  expect_refused(host(3), "pcilend borrow --frontend vfio " + ids_[1], "another function");
  ASSERT_OK(host(2).run("pcilend return " + ids_[0]));
  ASSERT_OK(host(3).run("pcilend borrow --frontend vfio " + ids_[1]));
  expect_refused(host(2), "pcilend borrow --frontend vfio " + ids_[0], "another function");
  ASSERT_OK(host(3).run("pcilend return " + ids_[1]));

  // And all of them to the other node.
  for (const auto& id : ids_) ASSERT_OK(host(3).run("pcilend borrow --frontend vfio " + id));
  for (const auto& id : ids_) ASSERT_OK(host(3).run("pcilend return " + id));
  for (const auto& address : address_) ASSERT_OK(host(1).run("pcilend unavailable " + address));
  for (int i = 0; i < kDrives; ++i) EXPECT_OK(await(1, i, "driver", "nvme"));
}

// At the same time.
TEST_F(Group, TwoDrivesOfOneGroupGoToOneGuest) {
  lend();
  const auto guest = start_guest();
  ASSERT_OK(guest);
  const auto a = disk(*guest, "a"), b = disk(*guest, "b");
  ASSERT_OK(a);
  ASSERT_OK(b);
  // They are functions of one device.
  EXPECT_OK(guest->run(
      "cd /sys/bus/pci/devices && one=$(basename $(readlink -f /sys/block/nvme0n1/device/device)) "
      "&& [ -e ${one%.*}.0 ] && [ -e ${one%.*}.1 ]"));
  EXPECT_OK(use(*guest, {*a, *b}));
  expect_refused(host(3), "pcilend borrow --frontend vfio " + ids_[0], ids_[0]);
  ASSERT_OK(guest->shut_down());
  for (int i = 0; i < kDrives; ++i) ASSERT_OK(await(1, i, "state", "available"));
  for (const auto& address : address_) ASSERT_OK(host(1).run("pcilend unavailable " + address));
  for (int i = 0; i < kDrives; ++i) EXPECT_OK(await(1, i, "driver", "nvme"));
}

/*
 *   host1                                  host2
 *   a: unavailable --force ═══════════════ guest with both: loses a, goes on with b
 *   a: its driver has it when b is back
 */
TEST_F(Group, OneIsTakenTheOtherGoesOn) {
  expect_in_log("DMAR: DRHD: handling fault status reg");
  expect_in_log(
      R"(DMAR: \[DMA (Read|Write) NO_PASID\] Request device \[(0000:)?00:0[45]\.0\] fault addr 0x100[0-9a-f]{8} )");
  lend();
  const auto guest = start_guest();
  ASSERT_OK(guest);
  const auto b = disk(*guest, "b");
  ASSERT_OK(b);

  ASSERT_OK(host(1).run("pcilend unavailable --force " + address_[0]));
  const auto taken = function(1, 0);
  ASSERT_OK(taken);
  EXPECT_EQ(taken->at("state"), "added");
  EXPECT_EQ(taken->at("driver"), "pcilend") << "the group is not the host's yet";
  expect_refused(host(1), "pcilend remove " + address_[0], "another function");
  EXPECT_OK(use(*guest, {*b}));

  ASSERT_OK(guest->destroy());
  ASSERT_OK(await(1, 1, "state", "available"));
  EXPECT_OK(await(1, 0, "driver", "nvme"));
  ASSERT_OK(host(1).run("pcilend unavailable " + address_[1]));
  EXPECT_OK(await(1, 1, "driver", "nvme"));
}

}  // namespace
}  // namespace pcilend::scenarios
