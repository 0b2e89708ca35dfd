// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>

#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

constexpr int kHosts = 3;

// Three hosts, each with a drive and an adapter to each of the others. Host1 has less memory, and
// so a lower PCI hole: the others plan their apertures anew when it says so.
class Mesh : public testing::Test {
 protected:
  static int next(int host) { return host % kHosts + 1; }

  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "mesh";
    options.hosts = kHosts;
    for (int host = 1; host <= kHosts; ++host) {
      options.memory[host] = host == 1 ? 1024 : 1152;
      ASSERT_OK(
          options.add_device(fmt::format("host{0}:nvme,serial=drive{0},drive-size=64M", host)));
    }
    ASSERT_OK(start_lab(options, lab_));
  }
  static void TearDownTestSuite() { EXPECT_OK(end_lab(lab_)); }

  void SetUp() override {
    ASSERT_TRUE(lab_) << "the lab did not start";
    for (int host = 1; host <= kHosts; ++host) ASSERT_OK(lab_->host(host).mark_log());
  }

  void TearDown() override {
    if (!lab_) return;
    for (MainJob& job : jobs_) EXPECT_OK(job.clean_up());
    for (int host = 1; host <= kHosts; ++host) EXPECT_OK(lab_->host(host).check_log());
  }

  // The drive of `lender` is for `borrower`, in a guest there or without one.
  void add_job(int lender, int borrower) {
    const auto address = lab_->host(lender).address(0);
    ASSERT_OK(address);
    jobs_.emplace_back(lab_->host(lender), lab_->host(borrower), *address, "guest");
  }

  // All jobs are borrowed and used at the same time, and what was written is on the drives.
  void borrow_and_use_at_once() {
    std::vector<lab::Running> work;
    for (MainJob& job : jobs_) {
      ASSERT_OK(job.lend());
      ASSERT_OK(job.see_available());
    }
    ASSERT_OK(lab_->fabric().counters(true));
    std::vector<BorrowedDrive> drives;
    for (MainJob& job : jobs_) {
      const auto drive = job.borrow();
      ASSERT_OK(drive);
      drives.push_back(*drive);
    }
    for (size_t i = 0; i < jobs_.size(); ++i) {
      auto running = jobs_[i].borrower().start(
          fmt::format("head -c 512K /dev/urandom >/tmp/data && "
                      "dd if=/tmp/data of={0} bs=16k oflag=direct 2>/dev/null && "
                      "fio --name=verify --filename={0} --direct=1 --rw=randwrite --bs=4k "
                      "--offset=1M --size=512k --verify=crc32c --verify_fatal=1 >&2 && "
                      "dd if={0} of=/tmp/read bs=16k count=32 iflag=direct 2>/dev/null && "
                      "cmp /tmp/data /tmp/read && sha256sum </tmp/data",
                      drives[i].disk),
          {{}, 5min});
      ASSERT_OK(running);
      work.push_back(std::move(*running));
    }
    ASSERT_OK(lab::eventually("data crosses the NTB in all directions", lab::kPatience, [&] {
      const auto counters = lab_->fabric().counters();
      return counters && std::all_of(jobs_.begin(), jobs_.end(), [&](const MainJob& job) {
               const PathOfJob path(job);
               return counters->path(path.lender, path.borrower).memory.read_bytes > (128u << 10);
             });
    }));
    for (const lab::Running& one : work) EXPECT_FALSE(one.ended()) << "not at the same time";
    for (size_t i = 0; i < jobs_.size(); ++i) {
      const auto output = work[i].wait();
      ASSERT_OK(output);
      ASSERT_EQ(output->code, 0) << output->out << output->err;
      sums_.push_back(output->text());
    }
    const auto counters = lab_->fabric().counters();
    ASSERT_OK(counters);
    for (const MainJob& job : jobs_) {
      const PathOfJob path(job);
      EXPECT_GT(counters->path(path.lender, path.borrower).interrupt.writes, 0u);
      EXPECT_EQ(counters->path(path.borrower, path.lender).all_ones_reads, 0u);
    }
    for (MainJob& job : jobs_) ASSERT_OK(job.borrower().run("pcilend return " + job.id()));
    for (size_t i = 0; i < jobs_.size(); ++i) expect_on_drive(jobs_[i], sums_[i]);
  }

  static std::optional<lab::Lab> lab_;
  std::vector<MainJob> jobs_;

 private:
  struct PathOfJob {
    explicit PathOfJob(const MainJob& job)
        : lender(job.lender().number()), borrower(job.borrower().number()) {}
    int lender;
    int borrower;
  };

  // The lender's own driver reads what the borrower has written.
  static void expect_on_drive(const MainJob& job, const std::string& sum) {
    ASSERT_OK(job.lender().run("pcilend unavailable " + job.id()));
    const auto disk = job.lender_disk();
    ASSERT_OK(disk);
    const auto same = job.lender().run(
        fmt::format("dd if={} bs=16k count=32 iflag=direct 2>/dev/null | sha256sum", *disk));
    ASSERT_OK(same);
    EXPECT_EQ(*same, sum + "\n") << job.lender().name();
  }

  std::vector<std::string> sums_;  // of what each borrower wrote
};

std::optional<lab::Lab> Mesh::lab_;

/*
 *   host1 (node 4)            host2 (node 8)            host3 (node 12)
 *   drive one ═══════════════ guest with one            ·
 *   ·                         drive two ═══════════════ guest with two
 *   guest with three ══════════════════════════════════ drive three
 *
 * Each host lends a drive to the next and borrows that of the one before it, each pair through
 * adapters of its own, all at the same time.
 */
TEST_F(Mesh, EachHostLendsAndBorrowsAtOnce) {
  for (int host = 1; host <= kHosts; ++host) add_job(host, next(host));
  for (MainJob& job : jobs_) {
    ASSERT_OK(job.fill_drive());
    ASSERT_OK(job.lend());
  }
  for (MainJob& job : jobs_) {
    ASSERT_OK(job.see_available());
    ASSERT_OK(job.start_guest());
  }
  for (MainJob& job : jobs_) ASSERT_OK(job.await_guest_disk());
  for (int host = 1; host <= kHosts; ++host) {
    const auto function = jobs_[host - 1].function_on(lab_->host(host));
    ASSERT_OK(function);
    EXPECT_EQ(function->at("state"), "borrowed");
    EXPECT_EQ(function->at("borrower"), lab_->host(next(host)).node());
  }

  std::vector<lab::Running> work;
  for (MainJob& job : jobs_) {
    auto running = job.guest().start(
        "mkdir -p /mnt && mount -t ext4 /dev/nvme0n1 /mnt && cd /mnt && head -4 SUMS | sha256sum "
        "-c "
        "&& dd if=/dev/urandom of=guest1 bs=16k count=8 oflag=direct && sha256sum guest1 "
        ">GUEST-SUMS && cd / && umount /mnt",
        {{}, 10min});
    ASSERT_OK(running);
    work.push_back(std::move(*running));
  }
  for (lab::Running& one : work) {
    const auto output = one.wait();
    ASSERT_OK(output);
    EXPECT_EQ(output->code, 0) << output->out << output->err;
  }
  for (MainJob& job : jobs_) {
    ASSERT_OK(job.shut_down_guest());
    ASSERT_OK(job.take_back());
  }
  for (int host = 1; host <= kHosts; ++host) {
    const auto links = lab_->host(host).json("pcilend link --json");
    ASSERT_OK(links);
    for (const auto& link : links->at("links")) EXPECT_EQ(link.at("state"), "up");
    expect_nothing_mapped(lab_->host(host));
  }
}

/*
 *   host1 (node 4)            host2 (node 8)            host3 (node 12)
 *   drive one ═══════════════ nvme driver of host2      ·
 *   ·                         drive two ═══════════════ nvme driver of host3
 *   nvme driver of host1 ══════════════════════════════ drive three
 */
TEST_F(Mesh, DrivesGoRoundARing) {
  for (int host = 1; host <= kHosts; ++host) add_job(host, next(host));
  borrow_and_use_at_once();
}

}  // namespace
}  // namespace pcilend::scenarios
