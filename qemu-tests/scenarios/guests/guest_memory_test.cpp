// SPDX-License-Identifier: GPL-2.0-or-later
// Guests with memory of every layout and kind: a borrowed drive reaches all of it, also what comes
// and goes. In a guest, `reach` knows which physical page each command of the drive is for
// (lab/agent/reach.cpp).
#include <charconv>
#include <list>
#include <map>
#include <sstream>

#include "testing/guest_fio.h"
#include "testing/swept.h"
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kMiB = 1 << 20;
constexpr const char* kHigh = "100000000";  // 4 GiB
constexpr uint64_t kRomMiB = 8;             // of firmware, at most

std::string up_to(int mib) {
  return fmt::format("100000-{:x}", mib * kMiB);
}

std::string from_4_gib(int mib) {
  return fmt::format("{}-{:x}", kHigh, 4096 * kMiB + mib * kMiB);
}

class GuestMemory : public TwoHosts {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "memory";
    options.memory[2] = 5120;  // a guest of 3.5 GiB in it, in huge pages
    // Of QEMU's 40 bits a guest has none above 1 TiB.
    options.qemu_arguments[2] = {"-global", "EPYC-x86_64-cpu.phys-bits=42"};
    ASSERT_OK(make_rom());
    // Firmware of all kinds finds a ROM, and boots.
    ASSERT_OK(options.add_device("host1:nvme,serial=a,drive-size=64M,romfile=" + rom().path()));
    ASSERT_OK(options.add_device("host1:nvme,serial=b,drive-size=64M"));
    ASSERT_OK(start_lab(options, lab_));
  }

  void SetUp() override {
    TwoHosts::SetUp();
    const auto address = lender().address(1);
    ASSERT_OK(address);
    second_.emplace(lender(), borrower(), *address, "none");
    ASSERT_OK(job().lend());
    ASSERT_OK(second().lend());
    ASSERT_OK(job().see_available());
    ASSERT_OK(second().see_available());
  }

  void TearDown() override {
    if (!lab_) return;
    for (const lab::Guest& guest : guests_) {
      const auto state = guest.state();
      if (state && *state == "running") EXPECT_OK(guest.destroy());
      if (state) EXPECT_OK(guest.undefine());
    }
    set_huge_pages(0);
    set_transparent_huge_pages("always");
    EXPECT_OK(second_->clean_up());
    TwoHosts::TearDown();
  }

  [[nodiscard]] MainJob& second() { return *second_; }

  void set_huge_pages(int count) {
    EXPECT_OK(borrower().run(fmt::format(
        "echo {0} >/proc/sys/vm/nr_hugepages && [ $(cat /proc/sys/vm/nr_hugepages) -eq {0} ]",
        count)));
  }
  void set_transparent_huge_pages(const char* when) {
    EXPECT_OK(
        borrower().run(fmt::format("echo {} >/sys/kernel/mm/transparent_hugepage/enabled", when)));
  }

  // With these drives; nullptr, and the scenario has failed, if it does not come up.
  const lab::Guest* boot(const std::string& name, const std::vector<MainJob*>& drives,
                         const std::function<void(lab::GuestSpec&)>& shape) {
    std::vector<std::string> ids;
    for (const MainJob* drive : drives) ids.push_back(drive->id());
    auto spec = borrower().guest_spec(name, ids);
    EXPECT_OK(spec);
    if (!spec) return nullptr;
    shape(*spec);
    const lab::Guest& guest = guests_.emplace_back(borrower().guest(*spec));
    const auto up = [&]() -> Result<> {
      PCILEND_TRY(guest.define());
      PCILEND_TRY(guest.start());
      PCILEND_TRY(MainJob::await_disk(guest));
      return await_inside(guest, fmt::format("[ -b /dev/nvme{}n1 ]", drives.size() - 1));
    }();
    EXPECT_OK(up);
    return up ? &guest : nullptr;
  }

  static Result<> await_inside(const lab::Guest& guest, const std::string& condition) {
    const auto met = guest.run(fmt::format(
        "i=0; until {}; do i=$((i+1)); [ $i -lt 240 ] || exit 1; sleep 0.5; done", condition));
    if (!met) return tl::unexpected(met.error());
    return {};
  }

  // Takes `mib` of the guest's memory; of what lies in each range pages are reached by the drive.
  static std::string reach(int mib, const std::string& ranges, int drive = 0) {
    return fmt::format("reach /dev/nvme{}n1 {} {}", drive, mib, ranges);
  }

  // The borrower shows that this much of a guest is mapped: all but holes below 1 MiB, and
  // firmware's ROMs.
  void expect_mapped(const MainJob& drive, uint64_t mib) {
    const auto bytes = [&]() -> uint64_t {
      const auto function = drive.function_on(borrower());
      return function && function->at("guest_bytes").is_number()
                 ? function->at("guest_bytes").get<uint64_t>()
                 : 0;
    };
    const auto mapped = lab::eventually("all memory is mapped", lab::kPatience, [&] {
      return bytes() > (mib - 1) * kMiB && bytes() <= (mib + kRomMiB) * kMiB;
    });
    EXPECT_TRUE(mapped) << bytes() << " bytes of " << mib << " MiB are mapped";
    EXPECT_OK(borrower().run(
        fmt::format("pcilend show {} | grep 'guest memory: .* mapped'", drive.id())));
  }

  // Bytes of what is RAM or ROM for the guest, whose QEMU says so, maybe for several views of the
  // same: "ADDRESS-LAST (prio 0, ram): NAME".
  uint64_t ram_of(const lab::Guest& guest) {
    const auto text = borrower().run(fmt::format(
        "virsh qemu-monitor-command {} --hmp 'info mtree -f' | "
        "sed -n '/ AS \"memory\", root: system/,/^FlatView/s/^ *\\([0-9a-f]*\\)-\\([0-9a-f]*\\) "
        "(prio [0-9]*, r[ao]m):.*/\\1 \\2/p'",
        guest.name()));
    EXPECT_OK(text);
    if (!text) return 0;
    std::istringstream lines(*text);
    std::map<uint64_t, uint64_t> ranges;
    for (uint64_t first = 0, last = 0; lines >> std::hex >> first >> last;)
      ranges[first] = last + 1;
    uint64_t bytes = 0;
    for (const auto& [first, end] : ranges) bytes += end - first;
    return bytes;
  }

  // Where QEMU has put virtio-mem (memaddr) or a module (addr); 0, and the scenario has failed, if
  // nowhere.
  uint64_t address_of_memory(const lab::Guest& guest, const char* field) {
    const auto text =
        borrower().run(fmt::format("virsh qemu-monitor-command {} --hmp 'info memory-devices' | "
                                   "sed -n 's/^ *{}: 0x//p'",
                                   guest.name(), field));
    EXPECT_OK(text);
    uint64_t address = 0;
    if (text) std::from_chars(text->data(), text->data() + text->size(), address, 16);
    return address;
  }

  // What the lender, or a function of its, reaches of this host: so much of guests' memory, and
  // nothing that a peer does not always reach.
  uint64_t expect_swept(uint64_t least, uint64_t most) {
    const auto report = lab_->fabric().sweep(2, 1, sweep_ranges());
    EXPECT_OK(report);
    if (!report) return 0;
    const Reach reach = sorted(*report);
    EXPECT_GE(reach.slots, least);
    EXPECT_LE(reach.slots, most);
    EXPECT_EQ(reach, (Reach{kControlBytes, kInterruptBytes, reach.slots, 0, 0, {}}));
    fmt::print(stderr, "{} probes in {} s\n", report->json.at("probes").dump(),
               report->json.at("seconds").dump());
    return reach.slots;
  }
  void expect_swept(uint64_t bytes) { expect_swept(bytes, bytes); }
  void expect_sweeps() {
    for (const char* fault : kSweepFaults) expect_in_log(fault);
  }

  // KiB of the guest's QEMU in /proc/PID/smaps_rollup.
  int64_t kib_of(const lab::Guest& guest, const char* field) {
    const auto text =
        borrower().run(fmt::format("awk '$1 == \"{}:\" {{ print $2 }}' "
                                   "/proc/$(cat /run/libvirt/qemu/{}.pid)/smaps_rollup",
                                   field, guest.name()));
    EXPECT_OK(text);
    int64_t kib = -1;
    if (text) std::from_chars(text->data(), text->data() + text->size(), kib);
    return kib;
  }

 private:
  std::optional<MainJob> second_;
  std::list<lab::Guest> guests_;
};

/*
 *   host1 (lender)      host2 (borrower)
 *   nvme a ════════════ guest: q35, UEFI; 2 GiB below the PCI hole, 1.5 GiB above, huge pages
 *   nvme b ════════════
 *
 * Each drive's lender reaches all of it, and no page more; nor after the guest.
 */
TEST_F(GuestMemory, AboveTheHoleOfABigGuestWithTwoFunctions) {
  set_huge_pages(3584 / 2);
  const auto* guest = boot("big", {&job(), &second()}, [](lab::GuestSpec& spec) {
    spec.memory = 3584;
    spec.uefi = true;
    spec.huge_pages = true;
  });
  ASSERT_TRUE(guest);
  expect_mapped(job(), 3584);
  expect_mapped(second(), 3584);
  EXPECT_EQ(kib_of(*guest, "Private_Hugetlb"), 3584 << 10);
  const auto links = borrower().json("pcilend link --json");
  ASSERT_OK(links);
  EXPECT_LT(links->at("links").at(0).at("slot_bytes"), 2 * 3584 * kMiB) << "both use the same";
  const std::string ranges = up_to(2048) + " " + from_4_gib(1536);
  auto other = guest->start(reach(48, from_4_gib(1536), 1));
  ASSERT_OK(other);
  EXPECT_OK(guest->run(reach(1900, ranges)));
  const auto ended = other->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->err;

  expect_sweeps();
  const uint64_t ram = ram_of(*guest);
  EXPECT_GT(ram, 3583 * kMiB);
  expect_swept(ram);  // once, for both
  // `virsh destroy` does not wait for as long as the debug kernel takes to unmap so much.
  ASSERT_OK(guest->shut_down(20min));
  for (MainJob* drive : {&job(), &second()}) ASSERT_OK(drive->await_state(lender(), "available"));
  expect_swept(0);
}

/*
 *   host1 (lender)      host2 (borrower)
 *   nvme a ════════════ guest: i440fx, SeaBIOS, 128 MiB below the PCI hole, 4 KiB pages
 *   nvme b ════════════ guest: i440fx, UEFI, 512 MiB up to the hole
 *
 * Both do I/O at the same time; one goes, and the other goes on.
 */
TEST_F(GuestMemory, BelowAndUpToTheHoleOfTwoGuestsAtOnce) {
  set_transparent_huge_pages("never");
  const auto* small = boot("small", {&job()}, [](lab::GuestSpec& spec) {
    spec.machine = "pc";
    spec.memory = 128;
  });
  ASSERT_TRUE(small);
  expect_mapped(job(), 128);
  EXPECT_EQ(kib_of(*small, "AnonHugePages"), 0);
  set_transparent_huge_pages("always");
  const auto* other = boot("other", {&second()}, [](lab::GuestSpec& spec) {
    spec.machine = "pc";
    spec.uefi = true;
    spec.memory = spec.hole = 512;
  });
  ASSERT_TRUE(other);
  expect_mapped(second(), 512);

  auto at_once = small->start(reach(16, up_to(128)));
  ASSERT_OK(at_once);
  EXPECT_OK(other->run(reach(256, up_to(512))));
  const auto ended = at_once->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->err;
  ASSERT_OK(small->destroy());
  ASSERT_OK(job().await_state(lender(), "available"));
  EXPECT_OK(other->run(reach(256, up_to(512))));
}

/*
 *   host1 (lender)      host2 (borrower)
 *   nvme a ════════════ guest: i440fx, SeaBIOS; 512 MiB below the PCI hole, 256 MiB above;
 *                       its driver is loaded anew; it is reset during I/O; it reboots
 */
TEST_F(GuestMemory, AGuestStartsAnew) {
  const auto* guest = boot("guest", {&job()}, [](lab::GuestSpec& spec) {
    spec.machine = "pc";
    spec.memory = 768;
    spec.hole = 512;
  });
  ASSERT_TRUE(guest);
  // Behind what `reach` writes to.
  constexpr const char* kData = "/dev/nvme0n1 bs=16k count=16 skip=64 iflag=direct 2>/dev/null";
  const auto written = guest->run(
      "dd if=/dev/urandom of=/tmp/data bs=16k count=16 2>/dev/null && "
      "dd if=/tmp/data of=/dev/nvme0n1 bs=16k seek=64 oflag=direct 2>/dev/null && "
      "sha256sum </tmp/data");
  ASSERT_OK(written);
  const auto check = [&](const char* after) {
    SCOPED_TRACE(after);
    ASSERT_OK(MainJob::await_disk(*guest));
    expect_mapped(job(), 768);
    const auto read = guest->run(fmt::format("dd if={} | sha256sum", kData));
    ASSERT_OK(read);
    EXPECT_EQ(*read, *written);
    EXPECT_OK(guest->run(reach(400, up_to(512) + " " + from_4_gib(256))));
  };
  check("first boot");

  ASSERT_OK(guest->run("modprobe -r nvme && ! [ -e /dev/nvme0n1 ] && modprobe nvme"));
  check("another driver");

  auto boot_id = MainJob::boot_id(*guest);
  ASSERT_OK(boot_id);
  ASSERT_OK(lab_->fabric().counters(true));
  auto load = guest->start("dd if=/dev/zero of=/dev/nvme0n1 bs=16k seek=128 oflag=direct");
  ASSERT_OK(load);
  ASSERT_OK(lab::eventually("the guest's writes cross the NTB", lab::kPatience, [&] {
    const auto counters = lab_->fabric().counters();
    return counters && counters->path(1, 2).memory.read_bytes > (256u << 10);
  }));
  ASSERT_OK(borrower().run("virsh reset guest"));
  ASSERT_OK(MainJob::await_next_boot(*guest, *boot_id));
  check("virsh reset");

  boot_id = MainJob::boot_id(*guest);
  ASSERT_OK(boot_id);
  ASSERT_OK(guest->exec("reboot -f"));
  ASSERT_OK(MainJob::await_next_boot(*guest, *boot_id));
  check("reboot");
}

/*
 *   host1 (lender)      host2 (borrower)
 *   nvme a ════════════ guest: q35, SeaBIOS, 384 MiB up to the PCI hole, with a balloon that takes
 *                       128 MiB and gives them back during I/O; then + 256 MiB, then - 256 MiB
 *
 * While the memory goes, and afterwards, the lender reaches no page that is not the guest's.
 */
TEST_F(GuestMemory, ComesAndGoes) {
  const auto* guest = boot("guest", {&job()}, [](lab::GuestSpec& spec) {
    spec.memory = spec.hole = 384;
    spec.balloon = true;
    spec.pluggable = 256;
    // The guest uses it at once, and can give it back.
    spec.kernel_arguments = " memhp_default_state=online_movable";
  });
  ASSERT_TRUE(guest);
  expect_mapped(job(), 384);

  auto load = guest->start(fmt::format("until [ -e /tmp/enough ]; do {} >/dev/null || exit; done",
                                       reach(48, up_to(384))));
  ASSERT_OK(load);
  const int64_t before = kib_of(*guest, "Rss");
  for (const int mib : {256, 384}) {
    ASSERT_OK(borrower().run(fmt::format("virsh setmem guest {}M --live", mib)));
    ASSERT_OK(borrower().until(
        "virsh dommemstat guest | sed -n 's/^actual //p'",
        [&](const lab::Output& output) { return output.text() == std::to_string(mib << 10); }));
    // QEMU leaves the balloon's pages where they are: the function may reach them.
    EXPECT_GE(kib_of(*guest, "Rss"), before);
    expect_mapped(job(), 384);
  }
  ASSERT_OK(guest->run("touch /tmp/enough"));
  const auto ended = load->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->err;
  EXPECT_OK(guest->run(reach(160, up_to(384))));

  ASSERT_OK(borrower().write("/tmp/module.xml", lab::memory_module_xml(256)));
  ASSERT_OK(borrower().run("virsh attach-device guest /tmp/module.xml --live"));
  expect_mapped(job(), 640);
  ASSERT_OK(await_inside(*guest,
                         "[ -e /sys/devices/system/memory/memory33 ] && "
                         "! grep -q offline /sys/devices/system/memory/memory*/state"));
  EXPECT_OK(guest->run(reach(320, up_to(384) + " " + from_4_gib(256))));

  expect_sweeps();
  const uint64_t plugged = ram_of(*guest);
  expect_swept(plugged);
  auto detaching = borrower().start("virsh detach-device guest /tmp/module.xml --live");
  ASSERT_OK(detaching);
  const uint64_t unplugged = plugged - 256 * kMiB;
  ASSERT_OK(lab::eventually("what is unplugged is unmapped", lab::kPatience, [&] {
    return expect_swept(unplugged, plugged) == unplugged || HasFailure();
  }));
  const auto detached = detaching->wait();
  ASSERT_OK(detached);
  EXPECT_EQ(detached->code, 0) << detached->err;
  EXPECT_EQ(ram_of(*guest), unplugged);
  expect_mapped(job(), 384);
  EXPECT_OK(guest->run(reach(160, up_to(384))));
}

/*
 *   host1 (lender)      host2 (borrower)
 *   nvme a ════════════ guest: q35, 384 MiB up to the PCI hole; virtio-mem grows from nothing to
 *                       128, 384 and 512 MiB, shrinks to 256 and 128; then + 128 MiB, as a module
 *
 * All while fio verifies, and by the defaults of the guest's kernel. What is plugged is mapped, and
 * nothing else is.
 */
TEST_F(GuestMemory, GrowsAndShrinksByVirtioMem) {
  constexpr int kMost = 512;
  constexpr int kLeast = 128;  // its kernel keeps some of it for itself, and can't move that
  const auto* guest = boot("guest", {&job()}, [](lab::GuestSpec& spec) {
    spec.memory = spec.hole = 384;
    spec.virtio_mem = kMost;
    spec.pluggable = 128;
    spec.devices = kDiskWithFio;
  });
  ASSERT_TRUE(guest);
  expect_mapped(job(), 384);
  const uint64_t at = address_of_memory(*guest, "memaddr");
  ASSERT_GE(at, 4096 * kMiB);
  const auto plugged = [&](int mib) { return fmt::format("{:x}-{:x}", at, at + mib * kMiB); };

  // `reach` writes to the beginning of the drive.
  ASSERT_OK(mount_fio(*guest));
  auto load = guest->start(fmt::format("until [ -e /tmp/enough ]; do {} >/dev/null || exit; done",
                                       verify_by_fio(32, 256)),
                           {{}, 10min});
  ASSERT_OK(load);
  for (const int mib : {128, 384, kMost, 256, kLeast}) {
    SCOPED_TRACE(fmt::format("{} MiB", mib));
    ASSERT_OK(borrower().run(
        fmt::format("virsh update-memory-device guest --live --requested-size {}MiB", mib)));
    ASSERT_OK(borrower().until(
        "virsh dumpxml guest | sed -n \"s/.*<current unit='KiB'>\\([0-9]*\\)<.*/\\1/p\"",
        [&](const lab::Output& output) { return output.text() == std::to_string(mib << 10); }));
    expect_mapped(job(), 384 + static_cast<uint64_t>(mib));
    if (mib == kMost) {
      EXPECT_OK(guest->run(reach(640, plugged(mib))));
      expect_sweeps();
      const uint64_t ram = ram_of(*guest);
      expect_swept(ram);
    }
  }
  const auto kept = guest->run("awk '/^MemTotal/ { print $2 }' /proc/meminfo");
  ASSERT_OK(kept);
  EXPECT_LT(std::stoull(*kept), uint64_t{384 + kLeast} << 10);

  ASSERT_OK(borrower().write("/tmp/module.xml", lab::memory_module_xml(128)));
  ASSERT_OK(borrower().run("virsh attach-device guest /tmp/module.xml --live"));
  expect_mapped(job(), 384 + kLeast + 128);
  const uint64_t module = address_of_memory(*guest, "addr");
  ASSERT_NE(module, 0U);
  ASSERT_OK(await_inside(
      *guest, fmt::format("[ \"$(cat /sys/devices/system/memory/memory{}/state)\" = online ]",
                          module / (128 * kMiB))));
  EXPECT_OK(guest->run(reach(300, fmt::format("{:x}-{:x}", module, module + 128 * kMiB))));
  ASSERT_OK(guest->run("touch /tmp/enough"));
  const auto ended = load->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->err;
}

/*
 *   host1 (lender)      host2 (borrower)
 *   nvme a ════════════ guest: q35, 256 MiB below the PCI hole, 128 MiB above; then + 128 MiB
 *
 * What is above the hole is above 1 TiB: QEMU puts it there for CPUs of AMD whose guest may have
 * memory where these have their HyperTransport, which such a guest may by its <maxMemory>.
 */
TEST_F(GuestMemory, AboveOneTebibyte) {
  constexpr uint64_t kTebibyte = uint64_t{1} << 40;
  const auto* guest = boot("guest", {&job()}, [](lab::GuestSpec& spec) {
    spec.memory = 384;
    spec.hole = 256;
    spec.pluggable = 1020 << 10;
    spec.kernel_arguments = " memhp_default_state=online_movable";
  });
  ASSERT_TRUE(guest);
  expect_mapped(job(), 384);
  const std::string above = fmt::format("{:x}-{:x}", kTebibyte, kTebibyte + 128 * kMiB);
  EXPECT_OK(guest->run(reach(200, up_to(256) + " " + above)));

  ASSERT_OK(borrower().write("/tmp/module.xml", lab::memory_module_xml(128)));
  ASSERT_OK(borrower().run("virsh attach-device guest /tmp/module.xml --live"));
  expect_mapped(job(), 384 + 128);
  const uint64_t module = address_of_memory(*guest, "addr");
  ASSERT_GE(module, kTebibyte + 128 * kMiB);
  ASSERT_OK(await_inside(
      *guest, fmt::format("[ \"$(cat /sys/devices/system/memory/memory{}/state)\" = online ]",
                          module / (128 * kMiB))));
  EXPECT_OK(guest->run(reach(320, above + fmt::format(" {:x}-{:x}", module, module + 128 * kMiB))));
  EXPECT_OK(guest->run(MainJob::kUseDisk));
}

/*
 *   host1 (lender)      host2 (borrower)
 *   nvme a ════════════ guest: q35, 256 MiB, and an NVDIMM of 128 MiB, a file of the host's
 *
 * The drive's DMA goes to the NVDIMM's pages, in a file that the guest has there with dax; without
 * dax its block device is copied to the drive and back.
 */
TEST_F(GuestMemory, IsAnNvdimm) {
  constexpr const char* kFiles = "/var/lib/libvirt/qemu/ram";
  ASSERT_OK(borrower().run(fmt::format(
      "mkdir -p {0} && mount -t tmpfs tmpfs {0} && truncate -s 128M {0}/guest.nvdimm", kFiles)));
  const auto* guest = boot("guest", {&job()}, [](lab::GuestSpec& spec) { spec.nvdimm = 128; });
  ASSERT_TRUE(guest);
  expect_mapped(job(), 256 + 128);
  const uint64_t at = address_of_memory(*guest, "addr");
  ASSERT_NE(at, 0U);

  ASSERT_OK(guest->run("modprobe -a nfit nd_pmem"));
  ASSERT_OK(await_inside(*guest, "[ -b /dev/pmem0 ]"));
  EXPECT_OK(guest->run(
      "dd if=/dev/urandom of=/tmp/x bs=16k count=16 && dd if=/tmp/x of=/dev/pmem0 bs=16k && "
      "dd if=/dev/pmem0 of=/dev/nvme0n1 bs=16k count=16 iflag=direct oflag=direct && "
      "dd if=/dev/zero of=/dev/pmem0 bs=16k count=16 oflag=direct && "
      "dd if=/dev/nvme0n1 of=/dev/pmem0 bs=16k count=16 iflag=direct oflag=direct && "
      "dd if=/dev/pmem0 of=/tmp/y bs=16k count=16 && cmp /tmp/x /tmp/y"));

  // As `ndctl create-namespace --mode fsdax` has it: only then its pages can be a target of DMA.
  ASSERT_OK(
      guest->run("cd /sys/bus/nd/devices && echo namespace0.0 >../drivers/nd_pmem/unbind && "
                 "echo ram >pfn0.0/mode && cat /proc/sys/kernel/random/uuid >pfn0.0/uuid && "
                 "echo namespace0.0 >pfn0.0/namespace && echo pfn0.0 >../drivers/nd_pmem/bind"));
  ASSERT_OK(await_inside(*guest, "[ -b /dev/pmem0 ]"));
  ASSERT_OK(
      guest->run("mke2fs -b 4096 /dev/pmem0 && mkdir -p /mnt/dax && "
                 "mount -t ext4 -o dax /dev/pmem0 /mnt/dax && "
                 "dd if=/dev/zero of=/mnt/dax/file bs=1M count=64"));
  EXPECT_OK(guest->run(
      fmt::format("reach --in /mnt/dax/file /dev/nvme0n1 64 {:x}-{:x}", at, at + 128 * kMiB)));
  EXPECT_OK(guest->run("umount /mnt/dax"));
  ASSERT_OK(guest->destroy());
  ASSERT_OK(job().await_state(lender(), "available"));
  EXPECT_OK(borrower().run(fmt::format("umount {}", kFiles)));
}

/*
 *   host1 (lender)      host2 (borrower)
 *   nvme a ════════════ guest: q35, 256 MiB; its memory is a file that others of the host can map
 */
TEST_F(GuestMemory, InAFile) {
  // Nobody can pin pages of a file on a disk for writing.
  constexpr const char* kFiles = "/var/lib/libvirt/qemu/ram";
  ASSERT_OK(borrower().run(fmt::format("mkdir -p {0} && mount -t tmpfs tmpfs {0}", kFiles)));
  const auto* guest = boot("guest", {&job()}, [](lab::GuestSpec& spec) { spec.in_file = true; });
  ASSERT_TRUE(guest);
  EXPECT_OK(borrower().run(fmt::format(
      "grep -q ' rw-s .* {}/.*' /proc/$(cat /run/libvirt/qemu/guest.pid)/maps", kFiles)));
  expect_mapped(job(), 256);
  EXPECT_OK(guest->run(reach(128, up_to(256))));
  EXPECT_OK(guest->run(MainJob::kUseDisk));
  ASSERT_OK(guest->destroy());
  ASSERT_OK(job().await_state(lender(), "available"));
  EXPECT_OK(borrower().run(fmt::format("umount {}", kFiles)));
}

}  // namespace
}  // namespace pcilend::scenarios
