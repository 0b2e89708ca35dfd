// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/bare_drive.h"

namespace pcilend::scenarios {

using namespace std::chrono_literals;

namespace {

// In blocks of 16 KiB.
constexpr int kBlocks = 8;

}  // namespace

Result<> BareDrive::borrow() {
  const auto drive = job().borrow();
  if (!drive) return tl::unexpected(drive.error());
  address_ = drive->address;
  disk_ = drive->disk;
  controller_ = drive->controller;
  return {};
}

Result<> BareDrive::await_disk() {
  const auto found = scenarios::await_disk(borrower(), address_);
  if (!found) return tl::unexpected(found.error());
  disk_ = *found;
  return {};
}

uint64_t BareDrive::resets() const {
  const auto function = job().function_on(lender());
  EXPECT_OK(function);
  return function ? function->at("resets").get<uint64_t>() : 0;
}

Result<> BareDrive::write_data() const {
  PCILEND_TRY(borrower().run(fmt::format("head -c {}K /dev/urandom >/tmp/data && "
                                         "dd if=/tmp/data of={} bs=16k oflag=direct 2>/dev/null",
                                         kBlocks * 16, disk_),
                             {{}, 3min}));
  return {};
}

Result<> BareDrive::compare_data() const {
  PCILEND_TRY(
      borrower().run(fmt::format("dd if={} of=/tmp/read bs=16k count={} iflag=direct 2>/dev/null "
                                 "&& cmp /tmp/data /tmp/read",
                                 disk_, kBlocks),
                     {{}, 3min}));
  return {};
}

Result<> BareDrive::use_disk() const {
  PCILEND_TRY(write_data());
  return compare_data();
}

void BareDrive::use_without_lender(const std::function<void()>& use) const {
  const auto before = job().lender_effort();
  ASSERT_OK(before);
  ASSERT_OK(lab_->fabric().counters(true));
  use();
  const auto after = job().lender_effort();
  ASSERT_OK(after);
  const auto counters = lab_->fabric().counters();
  ASSERT_OK(counters);
  EXPECT_EQ(after->messages - before->messages, 0u) << "control messages during I/O";
  EXPECT_EQ(after->interrupts - before->interrupts, 0u) << "interrupts of the lender";
  EXPECT_GE(counters->path(1, 2).memory.read_bytes, 512u << 10) << "data written";
  EXPECT_GE(counters->path(1, 2).memory.write_bytes, 512u << 10) << "data read";
  EXPECT_GT(counters->path(1, 2).interrupt.writes, 0u);
  EXPECT_GT(counters->path(2, 1).bar.writes, 0u) << "doorbells";
}

void BareDrive::expect_data_on(const std::string& lender_disk) const {
  const auto here = lender().run(fmt::format(
      "dd if={} bs=16k count={} iflag=direct 2>/dev/null | sha256sum", lender_disk, kBlocks));
  ASSERT_OK(here);
  const auto there = borrower().run("sha256sum </tmp/data");
  ASSERT_OK(there);
  EXPECT_EQ(*here, *there);
}

void BareDrive::expect_back() const {
  ASSERT_OK(lender().run("pcilend unavailable " + *lender().address(0)));
  const auto disk = job().lender_disk();
  ASSERT_OK(disk);
  expect_data_on(*disk);
}

Result<> BareDrive::verify_on_both_processors(int kib) const {
  PCILEND_TRY(borrower().run(
      fmt::format("fio --name=verify --filename={} --direct=1 --rw=randwrite --bs=4k --offset=1M "
                  "--size={}k --offset_increment=1M --numjobs=2 --thread --cpus_allowed=0,1 "
                  "--cpus_allowed_policy=split --verify=crc32c --verify_fatal=1",
                  disk_, kib),
      {{}, 5min}));
  return {};
}

void BareDrive::flap_during(const std::string& command, uint64_t written) {
  ASSERT_OK(lab_->fabric().counters(true));
  auto running = borrower().start(command, {{}, 5min});
  ASSERT_OK(running);
  ASSERT_OK(lab::eventually("writes cross the NTB", lab::kPatience, [&] {
    const auto counters = lab_->fabric().counters();
    return counters && counters->path(1, 2).memory.read_bytes > written;
  }));
  ASSERT_OK(lab_->fabric().link_down(1, 2));
  ASSERT_OK(await_links_down(borrower()));
  ASSERT_OK(lab_->fabric().link_up(1, 2));
  const auto ended = running->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->out << ended->err;
}

void BareDrive::expect_interrupts_follow_affinity() const {
  const std::string line = fmt::format("awk '/ {}q0$/ ", controller_);
  const uint64_t irq = count(borrower(), line + "{ print $1 + 0 }' /proc/interrupts");
  for (const int cpu : {1, 0, 1}) {
    SCOPED_TRACE(fmt::format("processor {}", cpu));
    const std::string on_cpu = fmt::format("{}{{ print ${} }}' /proc/interrupts", line, cpu + 2);
    ASSERT_OK(borrower().run(fmt::format("echo {} >/proc/irq/{}/smp_affinity_list", cpu, irq)));
    // The first one may still be delivered where the last one was.
    const auto first = use_admin_queue();
    ASSERT_TRUE(first) << first.error().message << about_interrupt(irq);
    const uint64_t before = count(borrower(), on_cpu);
    const auto second = use_admin_queue();
    ASSERT_TRUE(second) << second.error().message << about_interrupt(irq);
    ASSERT_GT(count(borrower(), on_cpu), before) << about_interrupt(irq);
  }
}

Result<> BareDrive::use_admin_queue() const {
  // Its driver looks itself after 60 s, and then nobody sees any more what it waited for.
  PCILEND_TRY(borrower().run("nvme id-ctrl /dev/" + controller_, {{}, 50s}));
  return {};
}

std::string BareDrive::about_interrupt(uint64_t irq) const {
  const std::string both =
      fmt::format("pcilend show --json {}; pcilend link --json; dmesg | tail -n 40", job().id());
  const auto ask = [&](const lab::Host& host, const std::string& first) {
    const auto answer = host.exec(fmt::format("exec 2>&1; {}; {}", first, both), {{}, 30s});
    return fmt::format("\n---- {}:\n{}", host.name(),
                       answer ? answer->out : answer.error().message);
  };
  return ask(borrower(),
             fmt::format("grep -E 'CPU0|pcilend|ndev| {0}q' /proc/interrupts; "
                         "cat /proc/irq/{1}/*affinity_list; cat /sys/kernel/debug/irq/irqs/{1}; "
                         "cat /sys/class/nvme/{0}/state",
                         controller_, irq)) +
         ask(lender(), "grep -E 'CPU0|pcilend|ndev|DMAR|dmar' /proc/interrupts");
}

uint64_t BareDrive::count(const lab::Host& host, const std::string& command) {
  const auto text = host.run(command);
  EXPECT_OK(text);
  return text ? std::stoull(*text) : 0;
}

uint64_t BareDrive::interrupts(const lab::Host& host, const std::string& pattern) {
  return count(host, fmt::format("awk '/{}/ {{ for (i = 2; $i ~ /^[0-9]+$/; i++) n += $i }} END "
                                 "{{ print n + 0 }}' /proc/interrupts",
                                 pattern));
}

}  // namespace pcilend::scenarios
