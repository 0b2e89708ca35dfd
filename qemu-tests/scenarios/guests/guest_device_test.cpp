// SPDX-License-Identifier: GPL-2.0-or-later
// What a guest's kernel may do to a device, it may do to a borrowed function.
#include <sstream>

#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

// Of an NVMe drive without driver: its version register where BAR 0 is, where it is 64 KiB further
// on in its root port's window, and, then, where it was. Ends with BAR 0 where it was.
constexpr const char* kMoveBar = R"sh(
cd {} && echo 1 >enable && set -- $(head -n 1 resource) && at=$(($1)) || exit
version() {{ busybox devmem $(printf '0x%x' $(($1 + 8))); }}
low=$((0x$(hexdump -s 16 -n 4 -e '1/4 "%08x"' config)))
put() {{
  printf "$(printf '\\x%02x' $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)) $(($1 >> 24)))" |
    dd of=config bs=4 seek=4 conv=notrunc 2>/dev/null
}}
version $at
put $((low + 65536)) && version $((at + 65536)) && version $at
code=$?
put $low
echo 0 >enable
exit $code)sh";

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ guest: reads its ROM; resets it by FLR and by its bus; removes
 *   reset each time                it, finds it again; its BAR moves
 */
TEST_F(TwoHosts, AGuestResetsMovesAndRescansItsFunction) {
  expect_rom(lender().run(read_rom("/sys/bus/pci/devices/" + *lender().address(0))));
  ASSERT_OK(job().lend());
  ASSERT_OK(job().start_guest());
  ASSERT_OK(job().await_guest_disk());
  const lab::Guest& guest = job().guest();
  EXPECT_OK(guest.run(MainJob::kUseDisk));
  const auto device = guest.run("readlink -f /sys/class/nvme/nvme0/device | tr -d '\n'");
  ASSERT_OK(device);
  const std::string sum = "dd if=/dev/nvme0n1 bs=16k count=4 iflag=direct 2>/dev/null | sha256sum";
  const auto data = guest.run(sum);
  ASSERT_OK(data);
  const auto expect_works = [&](const char* after) {
    SCOPED_TRACE(after);
    ASSERT_OK(MainJob::await_disk(guest));
    EXPECT_EQ(guest.run(sum).value_or("it fails"), *data);
  };
  expect_works("booted");
  expect_rom(guest.run(read_rom(*device)));
  const auto resets = [&] { return job().function_on(lender())->at("resets").get<int>(); };

  for (const char* method : {"flr", "bus"}) {
    const int before = resets();
    ASSERT_OK(guest.run(fmt::format("echo {} >{}/reset_method", method, *device)));
    // QEMU's root ports don't show that their link is active after their bus was reset, which Linux
    // takes for a failure: so with a drive of the host's own, too.
    ASSERT_OK(guest.exec(fmt::format("echo 1 >{}/reset", *device)));
    expect_works(method);
    EXPECT_GT(resets(), before) << method << ": carried out by the lender";
  }

  ASSERT_OK(guest.run(fmt::format("echo 1 >{}/remove && ! [ -e /dev/nvme0n1 ]", *device)));
  ASSERT_OK(guest.run("echo 1 >/sys/bus/pci/rescan"));
  expect_works("removed and found again");

  const std::string name = device->substr(device->rfind('/') + 1);
  ASSERT_OK(guest.run(fmt::format("echo {} >/sys/bus/pci/drivers/nvme/unbind", name)));
  const auto versions = guest.run(fmt::format(kMoveBar, *device));
  ASSERT_OK(versions);
  std::istringstream words(*versions);
  std::string here;
  std::string there;
  std::string left;
  words >> here >> there >> left;
  EXPECT_EQ(there, here);
  EXPECT_NE(here, "0xFFFFFFFF");
  EXPECT_NE(left, here) << "it still answers where it was";
  ASSERT_OK(guest.run(fmt::format("echo {} >/sys/bus/pci/drivers/nvme/bind", name)));
  expect_works("moved, and moved back");
  ASSERT_OK(job().guest().destroy());
}

}  // namespace
}  // namespace pcilend::scenarios
