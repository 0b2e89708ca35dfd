// SPDX-License-Identifier: GPL-2.0-or-later
// Hosts that wait for each other's registers, answers that don't come, meshes.
#include <gmock/gmock.h>

#include "tests/fabric_lab.h"

namespace pcilend::fabric {
namespace {

using test::bytes_from;
using test::Host;
using test::milliseconds;
using test::value_bytes;

constexpr uint64_t kOnes = 0xffffffff;

class WaitTest : public test::FabricLab {
 protected:
  void SetUp() override { boot_mesh(2); }
  void boot_mesh(size_t hosts, FabricOptions options = {}) {
    make(hosts, options);
    for (size_t a = 1; a <= hosts; a++) {
      for (size_t b = 1; b <= hosts; b++) {
        if (a != b) boot(a, b);
      }
    }
  }
  // `from` reads a register of a function in `to`.
  uint16_t cross(size_t from, size_t to) { return begin_read(host(from, to), kRegionBar4, 0); }
  // The QEMU of `at` answers the read of `from` with 1.
  void serve(size_t at, size_t from) {
    const auto request = host(at, from).take_request(Command::DmaRead);
    ASSERT_TRUE(request);
    host(at, from).client.answer(*request, value_bytes<uint32_t>(1));
    run();
  }
  std::optional<uint64_t> answer(size_t from, size_t to, uint16_t id) {
    return answer_of(host(from, to), id);
  }
};

TEST_F(WaitTest, ASlowAnswerBecomesAllOnesOnceAndTheLateOneIsDropped) {
  const uint16_t id = cross(1, 2);
  const auto request = host(2, 1).take_request(Command::DmaRead);
  advance(milliseconds(999));
  EXPECT_EQ(answer(1, 2, id), std::nullopt);
  advance(milliseconds(1));
  EXPECT_EQ(answer(1, 2, id), kOnes);
  EXPECT_EQ(lost_reads(1, 2, Loss::Timeout), 1u);
  EXPECT_TRUE(logged("ARTEFACT timeout: host1-host2"));

  host(2, 1).client.answer(*request, bytes_from("late"));
  run();
  EXPECT_EQ(answer(1, 2, id), std::nullopt);
  const uint16_t next = cross(1, 2);
  serve(2, 1);
  EXPECT_EQ(answer(1, 2, next), 1u);
}

TEST_F(WaitTest, AnAnswerInTimeLeavesNoTimerBehind) {
  const uint16_t id = cross(1, 2);
  serve(2, 1);
  EXPECT_EQ(answer(1, 2, id), 1u);
  advance(milliseconds(5000));
  EXPECT_EQ(lost_reads(1, 2, Loss::Timeout), 0u);
  EXPECT_EQ(answer(1, 2, id), std::nullopt);
}

TEST_F(WaitTest, TwoHostsReadingEachOtherAreFreedByOneAllOnes) {
  const uint16_t first = cross(1, 2);
  const uint16_t second = cross(2, 1);
  advance(milliseconds(2));
  EXPECT_EQ(answer(2, 1, second), std::nullopt);
  advance(milliseconds(1));
  EXPECT_EQ(answer(2, 1, second), kOnes) << "the one that closed the circle";
  EXPECT_EQ(answer(1, 2, first), std::nullopt);
  EXPECT_EQ(lost_reads(2, 1, Loss::Cycle), 1u);
  EXPECT_TRUE(logged("ARTEFACT cycle: host2-host1"));
  // Host 2 is free now, and serves.
  serve(2, 1);
  EXPECT_EQ(answer(1, 2, first), 1u);
}

TEST_F(WaitTest, AnAnswerThatWasOnItsWayBreaksNoCircle) {
  const uint16_t first = cross(1, 2);
  const auto request = host(2, 1).take_request(Command::DmaRead);
  const uint16_t second = cross(2, 1);
  host(2, 1).client.answer(*request, value_bytes<uint32_t>(1));
  advance(milliseconds(1));
  EXPECT_EQ(answer(1, 2, first), 1u);
  advance(milliseconds(10));
  EXPECT_EQ(answer(2, 1, second), std::nullopt) << "no circle any more: it waits its time";
  serve(1, 2);
  EXPECT_EQ(answer(2, 1, second), 1u);
  EXPECT_EQ(lost_reads(2, 1, Loss::Cycle), 0u);
}

TEST_F(WaitTest, ThreeHostsInACircle) {
  boot_mesh(3);
  const uint16_t first = cross(1, 2);
  const uint16_t second = cross(2, 3);
  advance(milliseconds(10));
  EXPECT_EQ(answer(1, 2, first), std::nullopt);
  EXPECT_EQ(answer(2, 3, second), std::nullopt) << "a chain is no circle";
  const uint16_t third = cross(3, 1);
  advance(milliseconds(3));
  EXPECT_EQ(answer(3, 1, third), kOnes);
  serve(3, 2);
  EXPECT_EQ(answer(2, 3, second), 1u);
  serve(2, 1);
  EXPECT_EQ(answer(1, 2, first), 1u);
}

TEST_F(WaitTest, TwoCirclesThroughOneHost) {
  boot_mesh(3);
  cross(1, 2);
  cross(1, 3);  // two processors of host 1
  const uint16_t second = cross(2, 1);
  const uint16_t third = cross(3, 1);
  advance(milliseconds(3));
  EXPECT_EQ(answer(2, 1, second), kOnes);
  EXPECT_EQ(answer(3, 1, third), kOnes);
}

TEST_F(WaitTest, MemoryIsReadThroughACircle) {
  cross(1, 2);
  EXPECT_EQ(get(host(2, 1), kRegionBar2, 0, 4), 0u) << "host 1 waits, its memory doesn't";
}

TEST_F(WaitTest, APostedWriteToAWaitingHostIsSentAtOnce) {
  cross(2, 1);
  put<uint32_t>(host(1, 2), kRegionBar4, 0, 1);
  EXPECT_TRUE(host(2, 1).take_request(Command::DmaWrite));
}

TEST_F(WaitTest, ACircleEndsWithTheHostThatDies) {
  cross(1, 2);
  const uint16_t second = cross(2, 1);
  power_off(1, 2);
  EXPECT_EQ(answer(2, 1, second), kOnes);
  EXPECT_EQ(lost_reads(2, 1, Loss::Cycle), 0u);
  advance(milliseconds(5000));
  EXPECT_EQ(answer(2, 1, second), std::nullopt);
  boot(1, 2);
  host(2, 1).drain();
  host(2, 1).inbox.clear();
  const uint16_t id = cross(1, 2);
  serve(2, 1);
  EXPECT_EQ(answer(1, 2, id), 1u);
}

TEST_F(WaitTest, AHostThatNeverAnswersIsNotAskedWithoutEnd) {
  Host& reader = host(1, 2);
  for (int i = 0; i < 4096; i++) {
    reader.client.send_read(kRegionBar4, 0, 4);
    if (i % 256 == 255) {
      run();
      advance(milliseconds(1001));
      reader.drain();
      host(2, 1).drain();
    }
  }
  EXPECT_EQ(lost_reads(1, 2, Loss::Timeout), 4096u);
  const uint16_t id = cross(1, 2);
  EXPECT_EQ(answer(1, 2, id), kOnes) << "at once";
}

TEST_F(WaitTest, InAMeshEveryPairIsOnItsOwn) {
  boot_mesh(4);
  for (size_t from = 1; from <= 4; from++) {
    for (size_t to = 1; to <= 4; to++) {
      if (from == to) continue;
      put<uint64_t>(host(from, to), kRegionBar2, 8 * from, 10 * from + to);
    }
  }
  for (size_t from = 1; from <= 4; from++) {
    for (size_t to = 1; to <= 4; to++) {
      if (from == to) continue;
      EXPECT_EQ(host(to, from).ram.get<uint64_t>(8 * from), 10 * from + to);
      EXPECT_EQ(traffic(from, to, Target::Memory).writes, 1u);
    }
  }
  fabric->set_link(0, 2, false);
  EXPECT_EQ(get(host(1, 3), kRegionBar2, 0, 4), kOnes);
  EXPECT_EQ(get(host(3, 1), kRegionBar2, 0, 4), kOnes);
  EXPECT_EQ(get(host(1, 2), kRegionBar2, 0, 4), 0u);
  EXPECT_EQ(get(host(3, 4), kRegionBar2, 0, 4), 0u);
}

TEST_F(WaitTest, HostsAreKnownByName) {
  boot_mesh(3);
  EXPECT_EQ(fabric->host_named("host3"), 2u);
  for (const char* name : {"host0", "host4", "host", "host1x", "1", "", "host-1", "host 1"}) {
    const auto host = fabric->host_named(name);
    ASSERT_FALSE(host) << name;
    EXPECT_THAT(host.error().message, testing::HasSubstr("host1 to host3"));
  }
}

}  // namespace
}  // namespace pcilend::fabric
