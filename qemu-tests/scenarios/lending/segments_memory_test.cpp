// SPDX-License-Identifier: GPL-2.0-or-later
// What segments are made of, what they cost, and what limits them.
#include <gmock/gmock.h>

#include "scenarios/lending/segments.h"
#include "testing/kernel_memory.h"

namespace pcilend::scenarios {
namespace {

using json = nlohmann::json;
using testing::HasSubstr;

class SegmentMemory : public Segments {
 protected:
  // An owner as `what` says, which goes on; its id is id_.
  void own(const lab::Host& host, const std::string& what) {
    auto started = host.start(fmt::format("exec {} {}", kSegmentUser, what), {{}, kLong});
    ASSERT_OK(started);
    owner_.emplace(std::move(*started));
    ASSERT_OK(host.until("true", [&](const lab::Output&) {
      return owner_->ended() || !lines(owner_->output_so_far()).empty();
    }));
    if (owner_->ended()) {
      const auto ended = owner_->wait();
      FAIL() << what << ": " << (ended ? ended->err : ended.error().message);
    }
    const auto said = lines(owner_->output_so_far()).front();
    if (said.contains("id")) id_ = said.at("id");
  }
  void end() {
    owner_->interrupt();
    ASSERT_OK(owner_->wait());
    owner_.reset();
  }
  static void expect_refused(const lab::Host& host, const std::string& command, int code,
                             const std::string& text) {
    const auto said = host.exec(command);
    ASSERT_OK(said);
    EXPECT_EQ(said->code, code) << command << ": " << said->err;
    EXPECT_THAT(said->err, HasSubstr(text)) << command;
  }
  static int64_t kernel_memory_of(const lab::Host& host) {
    const auto bytes = kernel_memory(host);
    EXPECT_OK(bytes);
    return bytes.value_or(0);
  }
};

/*
 *   host1                              host2
 *   4 MiB in huge pages ── offer ────> each page is right
 *   1 MiB of a dma-heap ── offer ────> each page is right
 */
TEST_F(SegmentMemory, IsOfHugePagesOrOfAHeap) {
  ASSERT_OK(lender().run("echo 2 >/proc/sys/vm/nr_hugepages"));
  for (const char* what :
       {"create 8,4194304,huge fill 3 stay", "create 8,1048576,heap fill 3 stay"}) {
    SCOPED_TRACE(what);
    ASSERT_NO_FATAL_FAILURE(own(lender(), what));
    const auto steps = use(borrower(), fmt::format("connect {} check 3 fill 4 check 4", id_));
    ASSERT_EQ(steps.size(), 3U);
    EXPECT_EQ(steps[0].at("wrong"), 0);
    EXPECT_EQ(steps[2].at("wrong"), 0);
    ASSERT_NO_FATAL_FAILURE(end());
  }
  expect_refused(lender(), "pcilend segment create --huge --size 64M", 1, "");
  ASSERT_OK(lender().run("echo 0 >/proc/sys/vm/nr_hugepages"));
}

/*
 *   host1: RLIMIT_MEMLOCK, its memory cgroup, and segment_mib for each node
 */
TEST_F(SegmentMemory, IsLimited) {
  const std::string unprivileged =
      "ulimit -l 64 && exec setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock ";
  expect_refused(lender(), unprivileged + "pcilend segment create --size 1M", 1,
                 "raise the process's RLIMIT_MEMLOCK by 1024 KiB");
  ASSERT_OK(lender().run("grep -q cgroup2 /proc/mounts || mount -t cgroup2 none /sys/fs/cgroup"));
  ASSERT_OK(
      lender().run("cd /sys/fs/cgroup && echo +memory >cgroup.subtree_control && mkdir segments"));
  auto started = lender().start(
      "echo $$ >/sys/fs/cgroup/segments/cgroup.procs && "
      "exec pcilend segment create --json --size 16M 8");
  ASSERT_OK(started);
  EXPECT_OK(lender().until("cat /sys/fs/cgroup/segments/memory.stat", [](const lab::Output& o) {
    const size_t at = o.out.find("shmem ");
    return at != std::string::npos && std::stoll(o.out.substr(at + 6)) >= 16 << 20;
  }));
  started->interrupt();
  ASSERT_OK(started->wait());
  ASSERT_OK(lender().run("rmdir /sys/fs/cgroup/segments"));

  ASSERT_OK(
      lender().run("rmmod pcilend_mdev pcilend_shadow pcilend && "
                   "modprobe pcilend node=4 segment_mib=1 && "
                   "modprobe -a pcilend_shadow pcilend_mdev"));
  ASSERT_OK(lender().until("pcilend link --json", [](const lab::Output& o) {
    return o.out.find("\"state\": \"up\"") != std::string::npos;
  }));
  expect_refused(lender(), "pcilend segment create --size 2M 8", 4, "more than 1 MiB");
  ASSERT_NO_FATAL_FAILURE(own(lender(), "create 8,1048576 stay"));
  expect_refused(lender(), "pcilend segment create --size 4K 8", 4, "more than 1 MiB");
  ASSERT_NO_FATAL_FAILURE(end());
  ASSERT_OK(
      lender().run("rmmod pcilend_mdev pcilend_shadow pcilend && modprobe pcilend node=4 && "
                   "modprobe -a pcilend_shadow pcilend_mdev"));
  ASSERT_OK(lender().until("pcilend link --json", [](const lab::Output& o) {
    return o.out.find("\"state\": \"up\"") != std::string::npos;
  }));
}

/*
 *   host1: 250 segments of a page, offered <── 60 connections of one of them ── host2
 */
TEST_F(SegmentMemory, CostsTheKernelLittle) {
  constexpr int kMany = 250;
  constexpr int kCrowd = 60;
  const int64_t before = kernel_memory_of(lender());
  ASSERT_NO_FATAL_FAILURE(own(lender(), fmt::format("many 8 {}", kMany)));
  const int64_t segment = (kernel_memory_of(lender()) - before) / kMany;
  const auto listed = borrower().json("pcilend segment list --json");
  ASSERT_OK(listed);
  ASSERT_EQ(listed->at("segments").size(), static_cast<size_t>(kMany)) << "what peers offer";
  const std::string first = listed->at("segments").at(0).at("id");

  const int64_t free_before = kernel_memory_of(borrower());
  auto crowd = borrower().start(fmt::format("exec {} crowd {} {}", kSegmentUser, first, kCrowd));
  ASSERT_OK(crowd);
  ASSERT_OK(borrower().until("true", [&](const lab::Output&) {
    return crowd->ended() || !lines(crowd->output_so_far()).empty();
  }));
  ASSERT_FALSE(crowd->ended());
  const int64_t connection = (kernel_memory_of(borrower()) - free_before) / kCrowd;
  crowd->interrupt();
  ASSERT_OK(crowd->wait());
  ASSERT_NO_FATAL_FAILURE(end());
  expect_listed(lender(), 0);
  fmt::print(stderr,
             "-- kernel memory: {} bytes for a segment with an offer, {} for a connection\n",
             segment, connection);
  EXPECT_LT(segment, 32 << 10);
  EXPECT_LT(connection, 32 << 10);
}

/*
 *   host1, host2: requests at random, with descriptors of all kinds
 */
TEST_F(SegmentMemory, IsOfNoOtherDescriptor) {
  for (const auto* host : {&lender(), &borrower()}) {
    const auto said = host->run(fmt::format("{} guess 26 1500", kSegmentUser));
    ASSERT_OK(said);
    const auto counts = lines(*said);
    ASSERT_EQ(counts.size(), 1U);
    EXPECT_GT(counts[0].at("done"), 100) << "some of it makes sense";
  }
  expect_listed(lender(), 0);
  expect_listed(borrower(), 0);
}

}  // namespace
}  // namespace pcilend::scenarios
