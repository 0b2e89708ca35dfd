// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/mastering.h"

#include <gtest/gtest.h>

#include <random>
#include <tuple>

namespace {

using State = pcilend_mastering_state;
using Event = pcilend_mastering_event;

constexpr u32 kOff = PCILEND_MASTERING_SWITCH_OFF;
constexpr u32 kOn = PCILEND_MASTERING_SWITCH_ON;
constexpr u32 kRecover = PCILEND_MASTERING_RECOVER;
constexpr u32 kTell = PCILEND_MASTERING_TELL;

struct Step {
  State from;
  bool cut;
  Event event;
  bool carries;
  State to;
  u32 todo;
};

TEST(Mastering, EachStep) {
  constexpr State off = PCILEND_MASTERING_OFF;
  constexpr State waiting = PCILEND_MASTERING_WAITING;
  constexpr State on = PCILEND_MASTERING_ON;
  constexpr State stale = PCILEND_MASTERING_STALE;
  constexpr State reset = PCILEND_MASTERING_RESET;
  const Step steps[] = {
      {off, false, PCILEND_MASTERING_WANT, true, on, kOn},
      {off, false, PCILEND_MASTERING_WANT, false, waiting, 0},
      {off, true, PCILEND_MASTERING_WANT, true, waiting, 0},
      {reset, false, PCILEND_MASTERING_WANT, true, on, kOn},
      {reset, false, PCILEND_MASTERING_WANT, false, waiting, 0},
      {on, false, PCILEND_MASTERING_WANT, true, on, 0},
      {stale, false, PCILEND_MASTERING_WANT, true, stale, 0},
      {on, false, PCILEND_MASTERING_DONT_WANT, true, off, kOff},
      {off, false, PCILEND_MASTERING_DONT_WANT, true, off, kOff},
      {waiting, false, PCILEND_MASTERING_DONT_WANT, true, off, kOff},
      {stale, false, PCILEND_MASTERING_DONT_WANT, true, stale, kOff},
      {reset, false, PCILEND_MASTERING_DONT_WANT, true, reset, kOff},
      {on, false, PCILEND_MASTERING_LOST, false, stale, kOff},
      {waiting, false, PCILEND_MASTERING_LOST, false, waiting, 0},
      {off, false, PCILEND_MASTERING_LOST, false, off, 0},
      {on, false, PCILEND_MASTERING_CUT, true, stale, kOff | kRecover},
      {off, false, PCILEND_MASTERING_CUT, true, off, kRecover},
      {waiting, true, PCILEND_MASTERING_UNMAP, true, waiting, 0},
      {waiting, true, PCILEND_MASTERING_RETRY, true, waiting, 0},
      {waiting, false, PCILEND_MASTERING_RETRY, true, on, kOn},
      {waiting, false, PCILEND_MASTERING_RETRY, false, waiting, 0},
      {stale, false, PCILEND_MASTERING_RETRY, true, stale, kRecover},
      {stale, false, PCILEND_MASTERING_RETRY, false, stale, 0},
      {reset, false, PCILEND_MASTERING_RETRY, true, reset, 0},
      {waiting, false, PCILEND_MASTERING_RESUME, true, on, kOn},
      {stale, false, PCILEND_MASTERING_RESUME, true, stale, kRecover},
      {reset, false, PCILEND_MASTERING_RESUME, true, reset, kTell},
      {off, false, PCILEND_MASTERING_RESUME, true, off, 0},
      {off, false, PCILEND_MASTERING_FOREIGN, true, stale, kOff},
      {on, false, PCILEND_MASTERING_FOREIGN, true, stale, kOff},
      {stale, false, PCILEND_MASTERING_RECOVERED, true, reset, kTell},
      {off, false, PCILEND_MASTERING_RECOVERED, true, off, 0},
      {stale, false, PCILEND_MASTERING_ENDED, true, off, 0},
      {reset, false, PCILEND_MASTERING_ENDED, true, off, 0},
  };
  for (const Step& step : steps) {
    pcilend_mastering m = {step.from, step.cut};
    const u32 todo = pcilend_mastering_step(&m, step.event, step.carries);
    EXPECT_EQ(std::tuple(m.state, todo), std::tuple(step.to, step.todo))
        << "from " << step.from << " by " << step.event << (step.carries ? ", carries" : "");
  }
}

// A host's function with the hardware's bit, through a million events.
TEST(Mastering, NeverOnAcrossALoss) {
  std::mt19937 random(20061126);  // a seed of its own, so that a failure repeats
  pcilend_mastering m = {};
  pcilend_carrier carrier = PCILEND_CARRIER_LOST;
  bool hardware = false;
  bool dirty = false;  // lost while on, and not reset since
  bool recover = false;
  for (int i = 0; i < 1'000'000; ++i) {
    const auto tell = [&](Event event) {
      const u32 todo = pcilend_mastering_step(&m, event, carrier == PCILEND_CARRIER_CARRIES);
      if ((todo & kOff) != 0) hardware = false;
      if ((todo & kOn) != 0) {
        ASSERT_FALSE(dirty) << "on again without a reset, step " << i;
        ASSERT_FALSE(m.cut) << "on while cut, step " << i;
        ASSERT_EQ(carrier, PCILEND_CARRIER_CARRIES) << "on while the link is lost, step " << i;
        hardware = true;
      }
      if ((todo & kRecover) != 0) recover = true;
      ASSERT_EQ(hardware, m.state == PCILEND_MASTERING_ON) << "step " << i;
    };
    switch (random() % 8) {
      case 0:
        tell(PCILEND_MASTERING_WANT);
        break;
      case 1:
        tell(PCILEND_MASTERING_DONT_WANT);
        break;
      case 2:
        dirty |= hardware;
        pcilend_carrier_lose(&carrier);
        tell(PCILEND_MASTERING_LOST);
        break;
      case 3:
        dirty |= hardware;
        tell(PCILEND_MASTERING_CUT);
        break;
      case 4:
        pcilend_carrier_take_lost(&carrier);
        break;
      case 5:
        if (pcilend_carrier_met(&carrier)) tell(PCILEND_MASTERING_RESUME);
        break;
      case 6:
        if (!recover) break;
        recover = false;
        tell(PCILEND_MASTERING_UNMAP);
        tell(PCILEND_MASTERING_RETRY);
        if (m.state == PCILEND_MASTERING_STALE && carrier == PCILEND_CARRIER_CARRIES) {
          dirty = false;
          recover = false;
          tell(PCILEND_MASTERING_RECOVERED);
        }
        break;
      default:
        if (random() % 16 != 0) break;
        hardware = false;
        dirty = false;
        tell(PCILEND_MASTERING_ENDED);
    }
    if (HasFatalFailure()) return;
  }
  // Nothing is stuck: with the link there, what was lost comes back.
  pcilend_carrier_take_lost(&carrier);
  ASSERT_TRUE(pcilend_carrier_met(&carrier));
  pcilend_mastering_step(&m, PCILEND_MASTERING_UNMAP, true);
  pcilend_mastering_step(&m, PCILEND_MASTERING_RETRY, true);
  pcilend_mastering_step(&m, PCILEND_MASTERING_RECOVERED, true);
  pcilend_mastering_step(&m, PCILEND_MASTERING_WANT, true);
  EXPECT_EQ(m.state, PCILEND_MASTERING_ON);
}

TEST(Mastering, ALossDuringTheHandshakeCounts) {
  pcilend_carrier carrier = PCILEND_CARRIER_LOST;
  EXPECT_TRUE(pcilend_carrier_take_lost(&carrier));
  EXPECT_FALSE(pcilend_carrier_take_lost(&carrier));
  EXPECT_FALSE(pcilend_carrier_lose(&carrier)) << "it did not carry yet";
  EXPECT_FALSE(pcilend_carrier_met(&carrier));
  EXPECT_TRUE(pcilend_carrier_take_lost(&carrier));
  EXPECT_TRUE(pcilend_carrier_met(&carrier));
  EXPECT_TRUE(pcilend_carrier_lose(&carrier));
  EXPECT_FALSE(pcilend_carrier_lose(&carrier));
}

}  // namespace
