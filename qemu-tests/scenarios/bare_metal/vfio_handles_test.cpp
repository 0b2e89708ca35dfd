// SPDX-License-Identifier: GPL-2.0-or-later
// By which name users of VFIO have a function: PCI address, mediated device, kind.
#include "scenarios/bare_metal/vfio_client.h"

namespace pcilend::scenarios {
namespace {

using nlohmann::json;

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ client by the function's PCI address; with the kernel's vfio-pci
 *
 * It is where `pcilend list` has said, for the client alone, and back with the lender afterwards.
 */
TEST_F(VfioClient, AnyUserOfVfioHasItByItsPciAddress) {
  ASSERT_NO_FATAL_FAILURE(share("nvme"));
  const auto place = borrower().run("pcilend list -n -o address | tr -d '\\n'");
  ASSERT_OK(place);
  EXPECT_EQ(*place, "8004:01:00.0");
  ASSERT_OK(borrower().run("pcilend borrow --frontend vfio " + id_));
  ASSERT_OK(borrower().until(
      fmt::format("readlink /sys/bus/pci/devices/{}/driver | grep -q /pcilend_vfio$", *place)));
  uuid_ = *place;
  const auto use = [&] {
    const auto said = borrower().json(client("nvme"));
    ASSERT_OK(said);
    EXPECT_EQ(said->at("serials"), json(std::vector<std::string>(12, kSerial)));
    EXPECT_EQ(said->at("stopped"), json::array({true, true}));
  };
  use();
  for (const char* driver : {"vfio-pci", "pcilend_vfio"}) {
    ASSERT_OK(borrower().run(
        fmt::format("modprobe vfio-pci; cd /sys/bus/pci/devices/{} && echo {} >driver_override && "
                    "echo {} >driver/unbind && echo {} >/sys/bus/pci/drivers_probe && "
                    "readlink driver | grep /{}$",
                    *place, driver, *place, *place, driver)));
    use();
  }

  std::optional<lab::Running> running;
  ASSERT_NO_FATAL_FAILURE(start_client("let-go", &running));
  const auto refused = borrower().exec("pcilend return " + id_);
  ASSERT_OK(refused);
  EXPECT_EQ(refused->code, static_cast<int>(ErrorClass::State)) << refused->err;
  ASSERT_OK(lender().run("pcilend unavailable --grace 90 " + address_));
  const auto ended = running->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->err;
  ASSERT_NO_FATAL_FAILURE(expect_state(lender(), "added"));
  EXPECT_OK(borrower().run(fmt::format("[ ! -e /sys/bus/pci/devices/{} ]", *place)));
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ client, by a mediated device of a kind
 *
 * With the UUID of a function it is that one, and never one of another kind; with any other UUID
 * one that is free. A function is one device at a time. The adapter may go under it, and come back.
 */
TEST_F(VfioClient, ADeviceOfAKindIsTheFunctionOfItsUuid) {
  constexpr const char* kOther = "9c2c1b0a-8899-4abb-8cdd-eeff00112233";
  ASSERT_NO_FATAL_FAILURE(share("nvme"));
  expect_available("storage", "1");
  expect_available("network", "0");
  const auto expect_not_made = [&](const std::string& make, const std::string& why) {
    const auto made = borrower().exec(make);
    ASSERT_OK(made);
    EXPECT_NE(made->code, 0);
    EXPECT_OK(borrower().run(fmt::format("dmesg | grep '{}'", why)));
  };
  expect_not_made(make_of_kind("network", uuid_), "is not of kind network");
  expect_not_made(make_of_kind("network", kOther), "no function of kind network is free");
  ASSERT_NO_FATAL_FAILURE(expect_state(lender(), "available"));

  ASSERT_OK(borrower().run(make_of_kind("storage", uuid_)));
  expect_owner("mdev:" + uuid_);
  expect_available("storage", "0");
  expect_not_made(make_device(kOther), "is mediated device " + uuid_ + " already");
  expect_not_made(make_of_kind("storage", kOther), "no function of kind storage is free");
  const auto used = borrower().json(client("nvme"));
  ASSERT_OK(used);
  EXPECT_EQ(used->at("serials").at(0), kSerial);
  std::optional<lab::Running> running;
  ASSERT_NO_FATAL_FAILURE(start_client("let-go", &running));
  ASSERT_OK(borrower().run(remove_device(uuid_)));
  const auto asked = running->wait();
  ASSERT_OK(asked);
  EXPECT_EQ(asked->code, 0) << asked->err;
  ASSERT_NO_FATAL_FAILURE(expect_state(lender(), "available"));
  expect_available("storage", "1");

  ASSERT_OK(borrower().run(make_of_kind("storage", kOther)));
  expect_owner(fmt::format("mdev:{}", kOther));
  EXPECT_OK(borrower().json(fmt::format("{} {} nvme", kClient, kOther)));
  ASSERT_OK(borrower().run(remove_device(kOther)));
  expect_available("storage", "1");

  ASSERT_OK(borrower().run(make_of_kind("storage", uuid_)));
  ASSERT_NO_FATAL_FAILURE(start_client("let-go", &running));
  ASSERT_OK(borrower().run("echo 0000:00:04.0 >/sys/bus/pci/drivers/ntb_hw_amd/unbind"));
  const auto without = running->wait();
  ASSERT_OK(without);
  EXPECT_EQ(without->code, 0) << without->err;
  ASSERT_OK(borrower().run("echo 0000:00:04.0 >/sys/bus/pci/drivers/ntb_hw_amd/bind"));
  ASSERT_OK(borrower().until(fmt::format("[ -e /sys/bus/mdev/devices/{}/iommu_group ]", uuid_),
                             lab::kPatience));
  expect_owner("mdev:" + uuid_);
  EXPECT_OK(borrower().json(client("nvme")));
  ASSERT_OK(borrower().run(remove_device(uuid_)));
  expect_available("storage", "1");
}

/*
 *   host1 (lender)                      host2 (borrower)
 *   nvme: not offered                   its mediated device is made, and waits
 *         available ══════════════════> has it; asked for it, lets go
 *         not offered, available ═════> has it again; loses it by force
 *         available ══════════════════> has it again
 *   reset; available ═════════════════> has it again
 */
TEST_F(VfioClient, ADeviceMadeBeforeItsFunctionIsOfferedGetsIt) {
  ASSERT_NO_FATAL_FAILURE(share("nvme"));
  const auto withdraw = [&] {
    ASSERT_OK(lender().run("pcilend unavailable --grace 90 " + address_));
    ASSERT_OK(lender().run("pcilend remove " + address_));
    ASSERT_OK(borrower().until(fmt::format("! pcilend list -n -o id | grep -q {}", id_)));
  };
  const auto expect_had = [&] {
    ASSERT_NO_FATAL_FAILURE(expect_state(lender(), "borrowed"));
    ASSERT_NO_FATAL_FAILURE(expect_state(borrower(), "borrowed"));
    expect_owner("mdev:" + uuid_);
    ASSERT_OK(borrower().until(fmt::format("[ -e /sys/bus/mdev/devices/{}/iommu_group ]", uuid_)));
    const auto used = borrower().json(client("nvme"));
    ASSERT_OK(used);
    EXPECT_EQ(used->at("serials").at(0), kSerial);
  };
  const auto expect_none = [&] {
    const auto without = borrower().exec(client("info"));
    ASSERT_OK(without);
    EXPECT_NE(without->code, 0);
  };
  ASSERT_NO_FATAL_FAILURE(withdraw());
  ASSERT_OK(borrower().run(make_of_kind("storage", uuid_)));
  EXPECT_OK(borrower().run("dmesg | grep 'waits for its function'"));
  expect_none();
  ASSERT_OK(offer(lender(), address_));
  ASSERT_NO_FATAL_FAILURE(expect_had());

  std::optional<lab::Running> running;
  ASSERT_NO_FATAL_FAILURE(start_client("let-go", &running));
  ASSERT_NO_FATAL_FAILURE(withdraw());
  const auto ended = running->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->err;
  expect_none();
  ASSERT_OK(offer(lender(), address_));
  ASSERT_NO_FATAL_FAILURE(expect_had());

  ASSERT_OK(lender().run("pcilend unavailable --force " + address_));
  ASSERT_NO_FATAL_FAILURE(expect_state(borrower(), "added"));
  expect_none();
  ASSERT_OK(lender().run("pcilend available " + address_));
  ASSERT_NO_FATAL_FAILURE(expect_had());

  ASSERT_OK(lender().reset());
  ASSERT_OK(lender().run(fmt::format("pcilend connect --force {}", borrower().node())));
  ASSERT_OK(offer(lender(), address_));
  ASSERT_NO_FATAL_FAILURE(expect_had());
  ASSERT_OK(borrower().run(remove_device(uuid_)));
  ASSERT_NO_FATAL_FAILURE(expect_state(lender(), "available"));
}

}  // namespace
}  // namespace pcilend::scenarios
