// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pcilend::lab {
namespace {

using testing::HasSubstr;

Result<DriverTraits> catalog(const std::string& driver) {
  if (driver == "nvme" || driver == "virtio-blk-pci") return DriverTraits{true, true};
  if (driver == "e1000e" || driver == "qemu-xhci" || driver == "pcie-root-port")
    return DriverTraits{true, false};
  if (driver == "usb-storage" || driver == "scsi-cd") return DriverTraits{false, true};
  return fail(ErrorClass::Usage, "device '{}': Device '{}' not found", driver, driver);
}

Result<std::vector<PlacedDevice>> place(const std::vector<std::string>& texts) {
  std::vector<DeviceString> devices;
  for (const std::string& text : texts) devices.push_back(DeviceString::parse(text).value());
  return place_devices(devices, 2, Layout("/lab"), catalog);
}

TEST(Placing, EachDeviceGetsAnIdASlotAndADrive) {
  const auto placed = place({"nvme,serial=a,drive-size=1M", "e1000e", "nvme,serial=b"});
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_EQ(placed->at(0).argument, "nvme,serial=a,id=device0,addr=10.0,drive=device0-drive");
  EXPECT_EQ(placed->at(0).asked, "nvme,serial=a");
  EXPECT_EQ(placed->at(0).slot, "10.0");
  EXPECT_EQ(placed->at(0).drive->file, "/lab/host2.device0.img");
  EXPECT_EQ(placed->at(0).drive->size, 1U << 20);
  EXPECT_EQ(placed->at(1).argument, "e1000e,id=device1,addr=11.0");
  EXPECT_FALSE(placed->at(1).drive);
  // QEMU does not start an nvme without a drive.
  EXPECT_EQ(placed->at(2).slot, "12.0");
  EXPECT_EQ(placed->at(2).drive->size, kDefaultDriveSize);
}

TEST(Placing, TheUsersOwnIdsAndAddressesStay) {
  const auto placed = place({"nvme,id=device0,addr=0x11", "e1000e", "e1000e,addr=5.1", "e1000e"});
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_EQ(placed->at(0).slot, "11.0");
  EXPECT_EQ(placed->at(1).argument, "e1000e,id=device1,addr=10.0");
  EXPECT_EQ(placed->at(2).slot, "05.1");
  EXPECT_EQ(placed->at(3).slot, "12.0");
}

TEST(Placing, DevicesOnOtherBusesAreLeftThere) {
  const auto placed = place({"pcie-root-port,id=rp1,chassis=1", "e1000e,bus=rp1", "qemu-xhci,id=x",
                             "usb-storage,bus=x.0,drive-size=64M"});
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_EQ(placed->at(1).argument, "e1000e,bus=rp1,id=device0");
  EXPECT_FALSE(placed->at(1).slot);
  EXPECT_EQ(placed->at(3).argument, "usb-storage,bus=x.0,id=device1,drive=device1-drive");
  EXPECT_FALSE(placed->at(3).slot);
}

TEST(Placing, ARootPortOfItsOwnTakesTheSlot) {
  const auto placed = place({"e1000e,root-port=on", "e1000e,root-port=off", "nvme,root-port=on"});
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_EQ(placed->at(0).port, "pcie-root-port,id=device0-port,addr=10.0,chassis=144");
  EXPECT_EQ(placed->at(0).argument, "e1000e,id=device0,bus=device0-port");
  EXPECT_FALSE(placed->at(0).slot);
  EXPECT_FALSE(placed->at(1).port);
  EXPECT_EQ(placed->at(1).argument, "e1000e,id=device1,addr=11.0");
  EXPECT_EQ(placed->at(2).port, "pcie-root-port,id=device2-port,addr=12.0,chassis=146");
  EXPECT_EQ(placed->at(2).argument, "nvme,id=device2,bus=device2-port,drive=device2-drive");
  EXPECT_EQ(place({"usb-storage,root-port=on"}).error().message,
            "host2: usb-storage is no PCI device; leave root-port out");
}

TEST(Placing, ADriveOfTheUsersIsNotMadeAgain) {
  const auto placed = place({"nvme,serial=a,drive=mine", "scsi-cd"});
  ASSERT_TRUE(placed);
  EXPECT_FALSE(placed->at(0).drive);
  EXPECT_FALSE(placed->at(1).drive);
}

TEST(Placing, MistakesAreNamed) {
  EXPECT_EQ(place({"nvmee"}).error().message, "device 'nvmee': Device 'nvmee' not found");
  EXPECT_EQ(place({"e1000e,drive-size=1M"}).error().message,
            "host2: e1000e has no drive; leave drive-size out");
  EXPECT_EQ(place({"e1000e,id=x", "e1000e,id=x"}).error().message,
            "host2: two devices have the id 'x'");
  for (const char* bad : {"", "x", "20", "5.8", "5.", "5.0.0"})
    EXPECT_THAT(place({fmt::format("e1000e,addr={}", bad)}).error().message,
                HasSubstr("is not SLOT or SLOT.FUNCTION"))
        << bad;
  EXPECT_THAT(place(std::vector<std::string>(16, "e1000e")).error().message,
              HasSubstr("no slot left on bus 0"));
  EXPECT_TRUE(place(std::vector<std::string>(15, "e1000e")));
}

TEST(DriverHelp, TellsWhatADriverIs) {
  const DriverTraits nvme = parse_driver_help(
      "nvme options:\n  addr=<str>             - Slot and optional function number\n"
      "  drive=<str>            - Node name or ID of a block device to use as a backend\n");
  EXPECT_TRUE(nvme.pci);
  EXPECT_TRUE(nvme.drive);
  const DriverTraits key = parse_driver_help("usb-kbd options:\n  port=<str>\n  usb_addr=<x>\n");
  EXPECT_FALSE(key.pci);
  EXPECT_FALSE(key.drive);
}

}  // namespace
}  // namespace pcilend::lab
