// SPDX-License-Identifier: GPL-2.0-or-later
// Memory in BARs, mapped for a function.
#include "scenarios/lending/targets.h"

namespace pcilend::scenarios {
namespace {

using testing::HasSubstr;

class BarTargets : public Targets {
 protected:
  // What exports the BAR of that host's memory device as a driver of a GPU would.
  static Result<> load_exporter(const lab::Host& where) {
    const auto address = where.address("memory");
    if (!address) return tl::unexpected(address.error());
    const auto loaded = where.run(fmt::format("modprobe pcilend_bar device={} bar=2", *address));
    if (!loaded) return tl::unexpected(loaded.error());
    return {};
  }
};

/*
 *   host1: process ── edu ──> BAR of another device of host1; its exporter takes it away
 */
TEST_F(BarTargets, OfTheLenderAreReachedUntilTheyAreTaken) {
  expect_stopped_dma();
  ASSERT_OK(load_exporter(host(1)));
  const auto steps =
      use(host(1), "export map copy 1 unmap write 2 look 1 map copy 3 take write 4 look 3 try");
  EXPECT_OK(host(1).run("rmmod pcilend_bar"));
  ASSERT_EQ(steps.size(), 12U);
  EXPECT_EQ(steps[2].at("there"), true);
  EXPECT_EQ(steps[2].at("back"), true);
  EXPECT_EQ(steps[5].at("there"), true) << "it was written to after it was unmapped";
  EXPECT_EQ(steps[7].at("back"), true);
  EXPECT_EQ(steps[10].at("there"), true) << "it was written to after it was taken away";
  EXPECT_THAT(steps[11].at("said").get<std::string>(), HasSubstr("exporter, pcilend_bar"));
}

/*
 *   host1: edu ── NTB ──> BAR of a device of host2, whose process has it
 */
TEST_F(BarTargets, OfTheBorrowerAreReachedUntilTheyAreTaken) {
  expect_in_log("DMAR: DRHD: handling fault status reg");
  expect_in_log(R"(DMAR: \[DMA (Read|Write) NO_PASID\] Request device \[(0000:)?00:0[0-9a-f])");
  ASSERT_OK(load_exporter(host(2)));
  const auto steps =
      use(host(2), "export map copy 1 unmap write 2 look 1 map copy 3 take write 4 look 3 state");
  EXPECT_OK(host(2).run("rmmod pcilend_bar"));
  ASSERT_EQ(steps.size(), 12U);
  EXPECT_EQ(steps[2].at("there"), true);
  EXPECT_EQ(steps[2].at("back"), true);
  EXPECT_EQ(steps[5].at("there"), true) << "it was written to after it was unmapped";
  EXPECT_EQ(steps[7].at("back"), true);
  EXPECT_EQ(steps[10].at("there"), true) << "it was written to after it was taken away";
}

/*
 *   host1: a process has two functions: edu copies into a BAR of the other one, bar-get's dma-buf
 */
TEST_F(BarTargets, OfAnotherLeasedFunctionAreReached) {
  const auto address = host(1).address("memory");
  ASSERT_OK(address);
  const auto offered = offer(host(1), *address);
  ASSERT_OK(offered);
  const std::string other = offered->at("id");
  const auto steps = use(host(1), fmt::format("also {} registers map copy 1 state", other));
  ASSERT_OK(await_state(host(1), other, "available"));
  EXPECT_OK(host(1).run("pcilend unavailable " + other));
  EXPECT_OK(host(1).run("pcilend remove " + other));
  ASSERT_EQ(steps.size(), 5U);
  EXPECT_EQ(steps[1].at("bar"), 2);
  EXPECT_EQ(steps[3].at("there"), true);
  EXPECT_EQ(steps[3].at("back"), true);
}

/*
 *   host1: edu ──> BAR of another function of host1 ── both leased by a process of host2, which
 * sees that BAR over the NTB; it is unmapped, and then the lease of the other function ends
 */
TEST_F(BarTargets, OfAnotherFunctionOfTheLenderAreReachedAsLongAsThatIsLeased) {
  expect_stopped_dma();
  const auto address = host(1).address("memory");
  ASSERT_OK(address);
  const auto offered = offer(host(1), *address);
  ASSERT_OK(offered);
  const std::string other = offered->at("id");
  ASSERT_OK(await_state(host(2), other, "available"));
  const auto steps =
      use(host(2), fmt::format("also {0} registers map copy 1 unmap write 2 look 1 map copy 3 "
                               "release write 4 also {0} try registers look 3 map copy 5",
                               other));
  ASSERT_OK(await_state(host(1), other, "available"));
  EXPECT_OK(host(1).run("pcilend unavailable " + other));
  EXPECT_OK(host(1).run("pcilend remove " + other));
  ASSERT_EQ(steps.size(), 17U);
  EXPECT_EQ(steps[1].at("bar"), 2);
  EXPECT_EQ(steps[3].at("there"), true);
  EXPECT_EQ(steps[3].at("back"), true);
  EXPECT_EQ(steps[6].at("there"), true) << "it was written to after it was unmapped";
  EXPECT_EQ(steps[8].at("back"), true);
  EXPECT_THAT(steps[12].at("said").get<std::string>(), HasSubstr("whose BAR it is, is over"))
      << "the dma-buf is of the former lease, though it is the same place in the window";
  EXPECT_EQ(steps[14].at("there"), true) << "it was written to after its lease was over";
  EXPECT_EQ(steps[16].at("back"), true);
}

/*
 *   host1: a process has edu, and a function of host2, whose BAR it sees over the NTB ── for edu,
 *   which is in the process's own host, that BAR is refused, leased or not; edu goes on
 */
TEST_F(BarTargets, OfAnotherHostAreRefusedForAFunctionOfThisHost) {
  const auto address = host(2).address("memory");
  ASSERT_OK(address);
  ASSERT_OK(host(2).run(fmt::format("pcilend connect {}", host(1).node())));
  const auto offered = offer(host(2), *address);
  ASSERT_OK(offered);
  const std::string other = offered->at("id");
  ASSERT_OK(await_state(host(1), other, "available"));
  const auto steps =
      use(host(1), fmt::format("also {} registers try release try near 16384 give 1", other));
  ASSERT_OK(await_state(host(2), other, "available"));
  EXPECT_OK(host(2).run("pcilend unavailable " + other));
  EXPECT_OK(host(2).run("pcilend remove " + other));
  EXPECT_OK(host(2).run(fmt::format("pcilend disconnect {}", host(1).node())));
  ASSERT_EQ(steps.size(), 7U);
  for (const size_t step : {2, 4})
    EXPECT_THAT(steps[step].at("said").get<std::string>(),
                HasSubstr("it is a BAR of another host's function: only functions of other hosts"));
  EXPECT_EQ(steps[6].at("given"), true);
}

}  // namespace
}  // namespace pcilend::scenarios
