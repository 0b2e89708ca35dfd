// SPDX-License-Identifier: GPL-2.0-or-later
// A leased drive as a disk (docs/nvme.md).
#include <gmock/gmock.h>

#include "main_job/admin_steps.h"
#include "scenarios/lending/left.h"
#include "testing/asserts.h"
#include "testing/suite_lab.h"
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using json = nlohmann::json;
using testing::HasSubstr;

// Where the disk is made of the drive of host1.
enum class Where { Lender, Borrower };

// A partition table with one partition from 1 MiB on, as large as the drive but for 2 MiB.
constexpr const char* kPartition =
    "(dd if=/dev/zero bs=446 count=1; "
    R"(printf '\0\0\0\0\203\0\0\0\0\010\0\0\0\360\001\0'; dd if=/dev/zero bs=48 count=1; )"
    R"(printf '\125\252') 2>/dev/null)";

/*
 *   host1 (lender, node 4)                                         host2 (borrower, node 8)
 *   disk ── program ── lease ── nvme ── IOMMU ── NTB ═════════════ NTB ── lease ── program ── disk
 *                                                                  queues, data: its memory
 */
class NvmeDisk : public testing::TestWithParam<Where> {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "nvme-disk";
    ASSERT_OK(options.add_device(
        fmt::format("host1:nvme,serial=disk,drive-size=64M{}", kNoShadowDoorbells)));
    ASSERT_OK(options.add_device("host1:edu,id=edu,dma_mask=0xffffffffff,root-port=on"));
    ASSERT_OK(start_lab(options, lab_));
    ASSERT_OK(lender().run(fmt::format("pcilend connect {}", lab_->host(2).node())));
    const auto address = lender().address(0);
    ASSERT_OK(address);
    address_ = *address;
  }
  static void TearDownTestSuite() { EXPECT_OK(end_lab(lab_)); }

  void SetUp() override {
    ASSERT_TRUE(lab_) << "the lab did not start";
    for (int host : {1, 2}) ASSERT_OK(lab_->host(host).mark_log());
    id_ = offered(address_);
    before_ = left_by_processes(*lab_);
  }
  void TearDown() override {
    if (!lab_) return;
    user_.reset();
    if (HasFailure()) (void)host().exec("umount -l /mnt; pcilend nvme detach --force " + id_);
    EXPECT_EQ(disks(), json::array());
    EXPECT_OK(await_state(lender(), id_, taken_ ? "added" : "available"));
    EXPECT_EQ(left_by_processes(*lab_), before_);
    if (!taken_) EXPECT_OK(lender().run("pcilend unavailable " + id_));
    EXPECT_OK(lender().run("pcilend remove " + id_));
    for (int host : {1, 2}) {
      expect_nothing_mapped(lab_->host(host));
      EXPECT_OK(lab_->host(host).check_log(expected_));
    }
  }

  static const lab::Host& lender() { return lab_->host(1); }
  // That of the disk.
  static const lab::Host& host() { return lab_->host(GetParam() == Where::Lender ? 1 : 2); }

  // Until its program knows that the drive is gone it rings its doorbells. The lender's IOMMU stops
  // what comes through the NTB then.
  void expect_stopped_doorbells() {
    expected_.emplace_back("DMAR: DRHD: handling fault status reg");
    expected_.emplace_back(
        R"(DMAR: \[DMA (Read|Write) NO_PASID\] Request device \[(0000:)?00:04\.0\] fault addr 0x100[0-9a-f]{8} )");
  }

  static std::string offered(const std::string& address) {
    const auto offered = offer(lender(), address);
    EXPECT_OK(offered);
    if (!offered) return {};
    EXPECT_OK(await_state(host(), offered->at("id"), "available"));
    return offered->at("id");
  }

  [[nodiscard]] static json disks() {
    const auto list = host().json("pcilend nvme list --json");
    EXPECT_OK(list);
    return list ? list->value("disks", json::array()) : json::array();
  }
  // What is listed of the one that there is.
  template <class Value>
  [[nodiscard]] static Value listed(const std::string& key, Value otherwise) {
    const json all = disks();
    return all.size() == 1 && !all[0].at(key).is_null() ? all[0].at(key).get<Value>() : otherwise;
  }
  static Result<lab::Output> await_listed(const std::string& key, const json& value) {
    return host().until("pcilend nvme list --json", [&](const lab::Output& output) {
      const json list = json::parse(output.out, nullptr, false);
      return list.is_object() && list.at("disks").size() == 1 &&
             list.at("disks")[0].at(key) == value;
    });
  }

  void attach(const std::string& options = "--alone") {
    const auto made = host().json(fmt::format("pcilend nvme attach --json {} {}", options, id_));
    ASSERT_OK(made);
    ASSERT_EQ(made->at("disks").size(), 1U);
    disk_ = made->at("disks")[0].at("disk");
  }
  void detach() { ASSERT_OK(host().run("pcilend nvme detach " + disk_)); }
  // What a command that must fail says of it.
  [[nodiscard]] static std::string refusal(const std::string& command, ErrorClass kind) {
    const auto refused = host().exec(command);
    EXPECT_OK(refused);
    if (!refused) return {};
    EXPECT_EQ(refused->code, static_cast<int>(kind)) << command << ": " << refused->err;
    EXPECT_EQ(std::ranges::count(refused->err, '\n'), 1) << refused->err;
    return refused->err;
  }

  // Writes all of 2 MiB in random order, and compares what it reads, again and again; it ends with
  // the first difference or error.
  void start_user(int depth) {
    const std::string command = fmt::format(
        "exec fio --name=user --filename={} --size=2M --bs=4k --rw=randwrite --direct=1 "
        "--ioengine=libaio --iodepth={} --verify=crc32c --verify_fatal=1 --loops=100000 "
        "--randrepeat=0 --output=/tmp/fio.out",
        disk_, depth);
    // It ends when it is told to; on a busy machine that may be long after a command's usual time.
    auto started = host().start(command, {{}, 20min});
    ASSERT_OK(started);
    user_.emplace(std::move(*started));
    ASSERT_NO_FATAL_FAILURE(await_io());
  }
  // It has done so many more requests.
  void await_io(uint64_t more = 200) {
    const auto done = [&]() -> uint64_t {
      const auto stat =
          host().run("awk '{ print $1 + $5 }' /sys/block/" + disk_.substr(5) + "/stat");
      EXPECT_OK(stat);
      return stat ? std::stoull(*stat) : 0;
    };
    const uint64_t before = done();
    ASSERT_OK(lab::eventually("I/O goes on", lab::kPatience,
                              [&] { return user_->ended() || done() > before + more; }));
    ASSERT_FALSE(user_->ended()) << host().read("/tmp/fio.out").value_or("");
  }
  // It has found no difference until now.
  void end_user() {
    ASSERT_OK(host().run("kill -INT $(pidof fio | tr ' ' '\\n' | sort -n | head -1)"));
    const auto ended = user_->wait();
    user_.reset();
    ASSERT_OK(ended);
    const auto said = host().read("/tmp/fio.out").value_or("");
    EXPECT_THAT(said, HasSubstr("err= 0")) << said;
  }
  static std::string sums(const lab::Host& host, const std::string& place) {
    const auto said = host.run(fmt::format("cd {} && find . -type f | sort | xargs cksum", place));
    EXPECT_OK(said);
    return said.value_or("");
  }

  static std::optional<lab::Lab> lab_;
  static std::string address_;
  std::string id_;
  std::string disk_;
  std::optional<lab::Running> user_;
  bool taken_ = false;  // by its own driver, in the course of the scenario
  lab::Expected expected_;

 private:
  std::string before_;
};

std::optional<lab::Lab> NvmeDisk::lab_;
std::string NvmeDisk::address_;

/*
 *   disk: partition ── ext4 ── files, discard, flush ── detached ── the lender's own driver: the
 *   same partition, the same files
 */
TEST_P(NvmeDisk, AFileSystemOnItIsOnTheDrive) {
  ASSERT_NO_FATAL_FAILURE(attach());
  EXPECT_EQ(listed<uint64_t>("size", 0), uint64_t{64} << 20);
  EXPECT_EQ(listed<std::string>("serial", ""), "disk");
  EXPECT_EQ(host().run("cat /sys/block/" + disk_.substr(5) + "/queue/write_cache"), "write back\n");
  ASSERT_OK(host().run("blkdiscard " + disk_));
  ASSERT_OK(host().run(fmt::format("{} | dd of={} conv=fsync 2>/dev/null && blockdev --rereadpt {}",
                                   kPartition, disk_, disk_)));
  ASSERT_OK(host().until(fmt::format("test -b {}p1 && udevadm settle", disk_)));
  EXPECT_EQ(host().run(fmt::format("readlink -f /dev/disk/by-id/pcilend-{}-ns1-part1", id_)),
            disk_ + "p1\n");
  ASSERT_OK(host().run(fmt::format("mkfs.ext4 -q {0}p1 && mount {0}p1 /mnt", disk_)));
  ASSERT_OK(host().run(
      "cd /mnt && for n in 1 2 3; do dd if=/dev/urandom of=file$n bs=64k count=$((n * 8)); done "
      "2>/dev/null && rm file1 && cp -r /etc/udev . && sync -f . && fstrim ."));
  const std::string before = sums(host(), "/mnt");
  EXPECT_THAT(refusal("pcilend nvme detach " + disk_, ErrorClass::State),
              HasSubstr("is mounted on /mnt: run 'umount /mnt'"));
  ASSERT_OK(host().run("umount /mnt"));
  ASSERT_NO_FATAL_FAILURE(detach());
  EXPECT_OK(host().run("! test -e " + disk_));

  ASSERT_OK(await_state(lender(), id_, "available"));
  ASSERT_OK(lender().run("pcilend unavailable " + id_));
  taken_ = true;
  const auto own = await_disk(lender(), address_);
  ASSERT_OK(own);
  ASSERT_OK(lender().run(fmt::format("fsck.ext4 -fn {}p1 >/dev/null 2>&1", *own)));
  ASSERT_OK(lender().run(fmt::format("mount -o ro {}p1 /mnt", *own)));
  EXPECT_EQ(sums(lender(), "/mnt"), before);
  EXPECT_OK(lender().run("umount /mnt"));
}

/*
 *   disk, under writes that are compared ── its program: kill -9 ── attached again; three times
 *
 * It is the same disk, and nobody who uses it sees an error, or other data than was written.
 */
TEST_P(NvmeDisk, ItOutlivesItsProgram) {
  ASSERT_NO_FATAL_FAILURE(attach());
  ASSERT_NO_FATAL_FAILURE(start_user(8));
  for (uint64_t round = 1; round <= 3; ++round) {
    ASSERT_OK(host().run(fmt::format("kill -9 {}", listed<uint32_t>("pid", 0))));
    ASSERT_OK(await_listed("state", "waiting"));
    const std::string before = disk_;
    ASSERT_NO_FATAL_FAILURE(attach());
    EXPECT_EQ(disk_, before);
    EXPECT_EQ(listed<uint64_t>("recoveries", 0), round);
    ASSERT_NO_FATAL_FAILURE(await_io());
  }
  ASSERT_NO_FATAL_FAILURE(end_user());
  ASSERT_NO_FATAL_FAILURE(detach());
}

/*
 *   disk, under writes that are compared ── the lender resets the drive ── it goes on
 *
 * One command at a time: QEMU's drive hung in a reset with eight under way over the NTB.
 */
TEST_P(NvmeDisk, ItOutlivesAReset) {
  expect_stopped_doorbells();
  ASSERT_NO_FATAL_FAILURE(attach());
  ASSERT_NO_FATAL_FAILURE(start_user(1));
  ASSERT_OK(lender().run(fmt::format("echo 1 >/sys/bus/pci/devices/{}/reset", address_)));
  ASSERT_OK(await_listed("recoveries", 1));
  ASSERT_NO_FATAL_FAILURE(await_io());
  ASSERT_NO_FATAL_FAILURE(end_user());
  ASSERT_NO_FATAL_FAILURE(detach());
}

/*
 *   disk, under writes that are compared ── the link is cut and put back ── it goes on
 *
 * By loopback that is nobody's business.
 */
TEST_P(NvmeDisk, ItOutlivesAFlap) {
  expect_stopped_doorbells();
  ASSERT_NO_FATAL_FAILURE(attach());
  ASSERT_NO_FATAL_FAILURE(start_user(8));
  ASSERT_OK(lab_->fabric().flap(1, 2, 500ms));
  if (GetParam() == Where::Borrower) ASSERT_OK(await_listed("recoveries", 1));
  ASSERT_NO_FATAL_FAILURE(await_io());
  EXPECT_EQ(listed<uint64_t>("recoveries", 9), GetParam() == Where::Borrower ? 1 : 0);
  ASSERT_NO_FATAL_FAILURE(end_user());
  ASSERT_NO_FATAL_FAILURE(detach());
}

/*
 *   disk, under writes that are compared ── the link is cut and put back, and again each time that
 *   the disk begins to recover ── it goes on
 */
TEST_P(NvmeDisk, ItOutlivesALinkThatFlapsWhileItRecovers) {
  expect_stopped_doorbells();
  ASSERT_NO_FATAL_FAILURE(attach());
  ASSERT_NO_FATAL_FAILURE(start_user(8));
  for (int i = 0; i < 5; ++i) {
    ASSERT_OK(lab_->fabric().flap(1, 2, 200ms));
    if (GetParam() == Where::Borrower) ASSERT_OK(await_listed("state", "recovering"));
  }
  ASSERT_OK(await_listed("state", "ready"));
  ASSERT_NO_FATAL_FAILURE(await_io());
  ASSERT_NO_FATAL_FAILURE(end_user());
  ASSERT_NO_FATAL_FAILURE(detach());
}

/*
 *   disk, written to ── detached: what is not written yet is ── and the drive is taken back (or the
 *   link is cut) meanwhile: the disk ends all the same
 */
TEST_P(NvmeDisk, ItEndsThoughTheDriveIsLostMeanwhile) {
  expect_stopped_doorbells();
  ASSERT_NO_FATAL_FAILURE(attach());
  // Who closes it last would write what is in the cache.
  auto writer = host().start(fmt::format(
      "(dd if=/dev/zero of={0} bs=1M count=32 2>/dev/null; echo; exec sleep 600) <{0}", disk_));
  ASSERT_OK(writer);
  ASSERT_OK(lab::eventually("it is written", lab::kPatience,
                            [&] { return writer->ended() || !writer->output_so_far().empty(); }));
  // The disk is in that state only while its cache is written: the first pcilend nvme list may come
  // too late.
  auto ending = host().start(
      fmt::format("while [ -e {0} ]; do grep -q '\"state\": \"ending\"' {0} && exit; done; exit 1",
                  "/run/pcilend/nvme/" + id_ + ".json"));
  ASSERT_OK(ending);
  auto detached = host().start("exec pcilend nvme detach --force " + id_);
  ASSERT_OK(detached);
  const auto seen = ending->wait();
  ASSERT_OK(seen);
  ASSERT_EQ(seen->code, 0) << "it has ended before";
  if (GetParam() == Where::Borrower)
    ASSERT_OK(lab_->fabric().link_down(1, 2));
  else
    ASSERT_OK(lender().run("pcilend unavailable --force " + id_));
  taken_ = GetParam() == Where::Lender;
  const auto ended = detached->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->err;
  EXPECT_OK(host().run("! test -e " + disk_));
  if (GetParam() == Where::Borrower) {
    ASSERT_OK(lab_->fabric().link_up(1, 2));
    ASSERT_OK(await_state(host(), id_, "available"));
  }
}

/*
 *   disk, mounted, written to ── the drive is taken back (or, on another host, the link is cut)
 *   ── errors, after the patience that was asked for; umount and detach end
 */
TEST_P(NvmeDisk, ADriveThatStaysAwayIsAnError) {
  expect_stopped_doorbells();
  ASSERT_NO_FATAL_FAILURE(attach("--alone --patience 5"));
  ASSERT_OK(host().run(fmt::format("mkfs.ext4 -q {0} && mount {0} /mnt", disk_)));
  auto writer = host().start(
      "while dd if=/dev/zero of=/mnt/file bs=64k count=16 conv=fsync 2>/dev/null; do echo; done");
  ASSERT_OK(writer);
  ASSERT_OK(lab::eventually("it writes", lab::kPatience,
                            [&] { return writer->ended() || writer->output_so_far().size() > 2; }));
  if (GetParam() == Where::Borrower)
    ASSERT_OK(lab_->fabric().link_down(1, 2));
  else
    ASSERT_OK(lender().run("pcilend unavailable --force " + id_));
  taken_ = GetParam() == Where::Lender;
  ASSERT_OK(await_listed("state", "failed"));
  const auto ended = writer->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(listed<std::string>("disk", ""), "");
  EXPECT_NE(listed<std::string>("error", ""), "");
  EXPECT_OK(host().run("umount /mnt"));
  EXPECT_OK(host().run("pcilend nvme detach " + id_));
  if (GetParam() == Where::Borrower) {
    ASSERT_OK(lab_->fabric().link_up(1, 2));
    ASSERT_OK(await_state(host(), id_, "available"));
    ASSERT_NO_FATAL_FAILURE(attach());
    EXPECT_OK(host().run(fmt::format("fsck.ext4 -fy {} >/dev/null 2>&1; test $? -le 1", disk_)));
    ASSERT_NO_FATAL_FAILURE(detach());
  }
}

/*
 *   manager, on the lender ── disk for several hosts, under writes that are compared: its program:
 *   kill -9 ── attached again
 *                          ── disk on the other host, to be read: it reads the same
 */
TEST_P(NvmeDisk, ClientsOfAManagerHaveDisks) {
  expect_stopped_doorbells();
  const std::string serve = fmt::format("exec pcilend-nvme-manager --vectors 1 {} 2>&1", id_);
  auto manager = lender().start(serve, {{}, 10min});
  ASSERT_OK(manager);
  ASSERT_OK(lab::eventually("it is shared", lab::kPatience, [&] {
    return manager->ended() || manager->output_so_far().find("is shared") != std::string::npos;
  }));
  ASSERT_FALSE(manager->ended()) << manager->output_so_far();
  const lab::Host& other = lab_->host(GetParam() == Where::Lender ? 2 : 1);
  ASSERT_NO_FATAL_FAILURE(attach("--shared-fs"));
  EXPECT_FALSE(listed<bool>("alone", true));
  const auto read_only = other.json("pcilend nvme attach --json --read-only " + id_);
  ASSERT_OK(read_only);
  const std::string reader = read_only->at("disks")[0].at("disk");

  ASSERT_NO_FATAL_FAILURE(start_user(8));
  ASSERT_OK(host().run(fmt::format("kill -9 {}", listed<uint32_t>("pid", 0))));
  ASSERT_OK(await_listed("state", "waiting"));
  ASSERT_NO_FATAL_FAILURE(attach("--shared-fs"));
  EXPECT_EQ(listed<uint64_t>("recoveries", 0), 1U);
  ASSERT_NO_FATAL_FAILURE(await_io());
  // Its manager ends in order, which deletes its queues, and begins anew.
  ASSERT_OK(lender().run("kill -TERM $(pidof pcilend-nvme-manager)"));
  const auto first = manager->wait();
  ASSERT_OK(first);
  EXPECT_EQ(first->code, 0) << first->out;
  auto second = lender().start(serve, {{}, 10min});
  ASSERT_OK(second);
  ASSERT_NO_FATAL_FAILURE(await_io());
  ASSERT_NO_FATAL_FAILURE(end_user());
  const auto sum = [](const lab::Host& at, const std::string& disk) {
    const auto said =
        at.run(fmt::format("dd if={} bs=64k count=32 iflag=direct 2>/dev/null | cksum", disk));
    EXPECT_OK(said);
    return said.value_or(disk);
  };
  EXPECT_EQ(sum(other, reader), sum(host(), disk_));
  EXPECT_OK(other.run("pcilend nvme detach " + reader));
  ASSERT_NO_FATAL_FAILURE(detach());
  ASSERT_OK(lender().run("kill -TERM $(pidof pcilend-nvme-manager)"));
  const auto ended = second->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->out;
}

TEST_P(NvmeDisk, BadInputIsRefused) {
  const auto says = [&](const std::string& words, const std::string& text, ErrorClass kind) {
    EXPECT_THAT(refusal("pcilend nvme " + words, kind), HasSubstr(text)) << words;
  };
  says("attach " + id_, "others may write to the drive, too", ErrorClass::Usage);
  says("attach --alone --depth 257 " + id_, "--depth 257: give 1 to 256", ErrorClass::Usage);
  says("attach --alone --namespace 2 " + id_, "has no namespace 2", ErrorClass::NotFound);
  says("attach --alone 40fff", "function with that id", ErrorClass::NotFound);
  says("detach /dev/ublkb7", "nothing is attached as /dev/ublkb7", ErrorClass::NotFound);

  const auto edu = lender().address("edu");
  ASSERT_OK(edu);
  const std::string other = offered(*edu);
  says("attach --alone " + other, other + " is no NVMe controller", ErrorClass::Unsupported);
  ASSERT_OK(await_state(lender(), other, "available"));
  EXPECT_OK(lender().run(fmt::format("pcilend unavailable {0} && pcilend remove {0}", other)));

  ASSERT_NO_FATAL_FAILURE(attach("--alone --read-only --shared-fs --queues 2 --depth 4"));
  says("attach --alone " + id_, id_ + " is attached already, as " + disk_, ErrorClass::State);
  EXPECT_OK(host().run(fmt::format("! dd if=/dev/zero of={} bs=4k count=1 2>/dev/null", disk_)));
  EXPECT_OK(host().run(
      fmt::format("dd if={} of=/dev/null bs=1M count=4 iflag=direct 2>/dev/null", disk_)));
  EXPECT_OK(host().run("udevadm settle && udevadm info " + disk_ + " | grep -q UDISKS_IGNORE=1"));
  const auto pid = listed<uint32_t>("pid", 0);
  ASSERT_OK(host().run(fmt::format("kill -9 {}", pid)));
  ASSERT_OK(await_listed("state", "waiting"));
  says("attach --alone " + id_, "with other options, and waits for its program", ErrorClass::State);
  EXPECT_EQ(listed<std::string>("disk", ""), disk_);

  // A record that can't be read, of a disk that waits.
  ASSERT_OK(host().run(fmt::format("echo '{{}}' >/run/pcilend/nvme/{}.json", id_)));
  const std::string remedy = fmt::format("'pcilend nvme detach --force {}'", id_);
  for (const std::string words : {"list", "attach --alone ", "detach "})
    says(words.ends_with(' ') ? words + id_ : words, remedy, ErrorClass::Failure);
  EXPECT_OK(host().run("! /usr/libexec/pcilend/pcilend-nvme-disk --alone " + id_));
  EXPECT_OK(host().run("test -e " + disk_));
  ASSERT_OK(host().run("pcilend nvme detach --force " + id_));
  EXPECT_OK(host().run(fmt::format("! test -e {} && pcilend nvme list", disk_)));
}

INSTANTIATE_TEST_SUITE_P(By, NvmeDisk, testing::Values(Where::Lender, Where::Borrower),
                         [](const auto& where) {
                           return where.param == Where::Lender ? "Loopback" : "Borrower";
                         });

}  // namespace
}  // namespace pcilend::scenarios
