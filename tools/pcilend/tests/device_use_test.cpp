// SPDX-License-Identifier: GPL-2.0-or-later
#include "device_use.h"

#include <gmock/gmock.h>

#include "host.h"

namespace pcilend::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class DeviceUseTest : public HostTest {
 protected:
  void SetUp() override {
    HostTest::SetUp();
    install("0000:00:05.0");
    disk("nvme0n1", kController + "/nvme0n1", "259:0");
    disk("nvme0n1p1", kController + "/nvme0n1/nvme0n1p1", "259:1");
    disk("vda", "sys/devices/pci0000:00/0000:00:02.0/virtio0/block/vda", "254:0");
  }

  void disk(const std::string& name, const std::string& directory, const std::string& number) {
    link("sys/class/block/" + name, directory);
    write(directory + "/dev", number + "\n");
  }
  DeviceUse use() {
    const auto found = find_device_use(Environment(root_), parse_pci_address("00:05.0").value());
    EXPECT_TRUE(found) << found.error().message;
    return found.value_or(DeviceUse{});
  }

  const std::string kController = "sys/devices/pci0000:00/0000:00:05.0/nvme/nvme0";
};

TEST_F(DeviceUseTest, AnIdleDiskIsFree) {
  EXPECT_THAT(use().block, IsEmpty());
}

TEST_F(DeviceUseTest, MountsOfPartitionsCount) {
  write("proc/self/mountinfo",
        "22 1 254:0 / / rw - ext4 /dev/vda rw\n"
        "41 22 259:1 / /mnt/my\\040data rw,relatime shared:3 - ext4 /dev/nvme0n1p1 rw\n");
  EXPECT_THAT(use().block, ElementsAre("/dev/nvme0n1p1 is mounted on /mnt/my data: run 'umount "
                                       "/mnt/my data'"));
}

TEST_F(DeviceUseTest, MountsByAnonymousNumberCount) {
  write("proc/self/mountinfo", "41 22 0:45 / /data rw - btrfs /dev/nvme0n1 rw\n");
  EXPECT_THAT(use().block, ElementsAre("/dev/nvme0n1 is mounted on /data: run 'umount /data'"));
}

TEST_F(DeviceUseTest, SwapCounts) {
  write("proc/swaps",
        "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
        "/dev/nvme0n1p1                          partition\t65532\t\t0\t\t-2\n");
  EXPECT_THAT(use().block, ElementsAre("/dev/nvme0n1p1 is swap: run 'swapoff /dev/nvme0n1p1'"));
}

TEST_F(DeviceUseTest, HoldersCount) {
  link(kController + "/nvme0n1/holders/dm-0", "sys/devices/virtual/block/dm-0");
  EXPECT_THAT(use().block, ElementsAre("/dev/nvme0n1 is part of /dev/dm-0: stop that first (lsblk "
                                       "shows the stack)"));
}

TEST_F(DeviceUseTest, ADiskBelowItsNvmeSubsystemCounts) {
  const std::string subsystem = "sys/devices/virtual/nvme-subsystem/nvme-subsys0";
  link("sys/class/nvme-subsystem/nvme-subsys0", subsystem);
  link(subsystem + "/nvme0", kController);
  disk("nvme9n1", subsystem + "/nvme9n1", "259:7");
  write("proc/self/mountinfo", "41 22 259:7 / /data rw - ext4 /dev/nvme9n1 rw\n");
  EXPECT_THAT(use().block, ElementsAre("/dev/nvme9n1 is mounted on /data: run 'umount /data'"));
}

TEST_F(DeviceUseTest, MalformedMountLinesAreSkipped) {
  write("proc/self/mountinfo", "\n1 2\n41 22 259:0 / /x rw\n - - -\n");
  EXPECT_THAT(use().block, IsEmpty());
}

TEST_F(DeviceUseTest, InterfacesThatAreUpAreNamed) {
  for (const char* name : {"eth0", "eth1"})
    link(std::string("sys/class/net/") + name,
         std::string("sys/devices/pci0000:00/0000:00:05.0/net/") + name);
  write("sys/devices/pci0000:00/0000:00:05.0/net/eth0/flags", "0x1002\n");
  write("sys/devices/pci0000:00/0000:00:05.0/net/eth1/flags", "0x1003\n");
  EXPECT_THAT(use().interfaces, ElementsAre("eth1"));
}

TEST_F(DeviceUseTest, UsersOfVfioAreNamed) {
  const std::string device = "sys/devices/pci0000:00/0000:00:05.0";
  link(device + "/iommu_group", "sys/kernel/iommu_groups/7");
  fs::create_directories(root_ / device / "vfio-dev/vfio3");
  const auto opened = [&](const std::string& process, const std::string& file) {
    fs::create_directories(root_ / "proc" / process / "fd");
    fs::create_symlink(file, root_ / "proc" / process / "fd/11");
  };
  opened("99", "/dev/vfio/17");
  opened("self", "/dev/vfio/7");
  EXPECT_THAT(use().vfio, IsEmpty());
  opened("1234", "/dev/vfio/7");
  write("proc/1234/comm", "qemu-system-x86\n");
  opened("300", "/dev/vfio/devices/vfio3");
  EXPECT_THAT(use().vfio,
              ElementsAre("process 1234 (qemu-system-x86) uses it through VFIO: end that, or the "
                          "guest",
                          "process 300 (?) uses it through VFIO: end that, or the guest"));
}

TEST_F(DeviceUseTest, AFunctionThatIsNotThereIsNotFound) {
  const auto found = find_device_use(Environment(root_), parse_pci_address("00:06.0").value());
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().kind, ErrorClass::NotFound);
}

}  // namespace
}  // namespace pcilend::test
