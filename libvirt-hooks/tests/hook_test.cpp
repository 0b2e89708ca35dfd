// SPDX-License-Identifier: GPL-2.0-or-later
#include "hook.h"

#include <fcntl.h>
#include <sys/file.h>

#include "hook_fixture.h"
#include "mdev.h"
#include "record.h"

namespace pcilend {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Phases, FollowLibvirtsTable) {
  EXPECT_EQ(phase_of("prepare", "begin"), Phase::Prepare);
  EXPECT_EQ(phase_of("stopped", "end"), Phase::Release);
  EXPECT_EQ(phase_of("release", "end"), Phase::Release);
  EXPECT_EQ(phase_of("reconnect", "begin"), Phase::Reconnect);
  for (const auto& [operation, sub] : {std::pair{"start", "begin"},
                                       {"started", "begin"},
                                       {"attach", "begin"},
                                       {"migrate", "begin"},
                                       {"restore", "begin"},
                                       {"prepare", "end"},
                                       {"", ""},
                                       {"invented", "later"}})
    EXPECT_EQ(phase_of(operation, sub), Phase::Other) << operation;
}

TEST_F(HookTest, PrepareBorrowsAndCreates) {
  ASSERT_TRUE(prepare(domain(kDomain, {kFirst})));
  EXPECT_THAT(kernel_.log, ElementsAre(fmt::format("borrow 40001 vfio {}", kDomain)));
  EXPECT_EQ(created(0x40001), kFirst);
  const auto record = load_record(environment_, parse_uuid(kDomain).value());
  ASSERT_TRUE(record && *record);
  EXPECT_EQ((*record)->name, "guest");
  ASSERT_EQ((*record)->functions.size(), 1u);
  EXPECT_TRUE((*record)->functions[0].created);
}

// libvirt finds the function at its address, bound to VFIO's driver.
TEST_F(HookTest, APciDeviceIsBorrowedAndReturned) {
  Domain d = domain(kDomain, {});
  d.functions = {FunctionId{0x40001}};
  ASSERT_TRUE(prepare(d));
  EXPECT_THAT(kernel_.log, ElementsAre(fmt::format("borrow 40001 vfio {}", kDomain)));
  EXPECT_EQ(created(0x40001), "") << "a mediated device";
  const auto record = load_record(environment_, parse_uuid(kDomain).value());
  ASSERT_TRUE(record && *record);
  ASSERT_EQ((*record)->functions.size(), 1U);
  EXPECT_EQ((*record)->functions[0].mdev, std::nullopt);
  ASSERT_TRUE(release(d));
  EXPECT_EQ(kernel_.log.back(), fmt::format("return 40001 {}", kDomain));
  EXPECT_FALSE(fs::exists(record_path(kDomain)));
}

TEST_F(HookTest, APciDeviceThatNobodyOffersIsRefused) {
  Domain d = domain(kDomain, {});
  d.functions = {FunctionId{0x4000f}};
  const auto refused = prepare(d);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorClass::NotFound);
  EXPECT_THAT(refused.error().message, HasSubstr("no host offers function 4000f to this one"));
}

// libvirtd was restarted, and the record is lost.
TEST_F(HookTest, ReconcileFindsAPciDevice) {
  Domain d = domain(kDomain, {});
  d.functions = {FunctionId{0x40001}};
  ASSERT_TRUE(prepare(d));
  fs::remove(record_path(kDomain));
  auto c = context();
  ASSERT_TRUE(reconcile_domain(c, d));
  ASSERT_TRUE(release(d));
  EXPECT_EQ(kernel_.log.back(), fmt::format("return 40001 {}", kDomain));
}

TEST_F(HookTest, ReleaseUndoesIt) {
  const Domain d = domain(kDomain, {kFirst});
  ASSERT_TRUE(prepare(d));
  add_mdev(kFirst);
  ASSERT_TRUE(release(d));
  EXPECT_EQ(removed(kFirst), "1");
  EXPECT_EQ(kernel_.log.back(), fmt::format("return 40001 {}", kDomain));
  EXPECT_FALSE(fs::exists(record_path(kDomain)));
  // release follows stopped
  kernel_.log.clear();
  EXPECT_TRUE(release(d));
  EXPECT_THAT(kernel_.log, IsEmpty());
}

TEST_F(HookTest, ADomainWithoutFunctionsNeverOpensNetlink) {
  EXPECT_TRUE(prepare(domain(kDomain, {})));
  EXPECT_TRUE(release(domain(kDomain, {})));
  EXPECT_EQ(kernel_.opened, 0);
  EXPECT_FALSE(fs::exists(root_ / "run"));
}

TEST_F(HookTest, AnMdevThatIsThereIsNeitherMadeNorRemoved) {
  add_mdev(kFirst);
  const Domain d = domain(kDomain, {kFirst});
  ASSERT_TRUE(prepare(d));
  EXPECT_EQ(created(0x40001), "");
  ASSERT_TRUE(release(d));
  EXPECT_EQ(removed(kFirst), "");
  EXPECT_EQ(kernel_.log.back(), fmt::format("return 40001 {}", kDomain));
}

// It borrowed the function when it was made, such as by 'nodedev-start'.
TEST_F(HookTest, AnMdevThatHasItsFunctionKeepsIt) {
  add_mdev(kFirst);
  hold(kernel_.functions[0], fmt::format("mdev:{}", kFirst));
  const Domain d = domain(kDomain, {kFirst});
  ASSERT_TRUE(prepare(d));
  EXPECT_TRUE(reconcile(d));
  fs::remove(record_path(kDomain));
  EXPECT_TRUE(reconcile(d));
  EXPECT_FALSE(fs::exists(record_path(kDomain)));
  ASSERT_TRUE(prepare(d));
  ASSERT_TRUE(release(d));
  EXPECT_THAT(kernel_.log, IsEmpty());
  EXPECT_EQ(created(0x40001), "");
  EXPECT_EQ(removed(kFirst), "");
  EXPECT_FALSE(fs::exists(record_path(kDomain)));
}

TEST_F(HookTest, WhatAnotherMdevHasIsRefused) {
  const std::string message = fmt::format(
      "40001 (Red Hat, Inc. QEMU NVM Express Controller) is in use on this host by mediated device "
      "{0}: stop it ('mdevctl stop -u {0}')",
      kAny);
  hold(kernel_.functions[0], fmt::format("mdev:{}", kAny));
  auto refused = prepare(domain(kDomain, {kFirst}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorClass::State);
  EXPECT_EQ(refused.error().message, message);
  Domain d = domain(kDomain, {});
  d.functions = {FunctionId{0x40001}};
  refused = prepare(d);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, message);
  EXPECT_THAT(kernel_.log, IsEmpty());
}

// It was made before its lender offered the function.
TEST_F(HookTest, AnMdevThatWaitsGetsWhatTheDomainBorrows) {
  add_mdev(kFirst, false);
  on_sleep_ = [this] {
    if (sleeps_ == 3) add_mdev(kFirst);
  };
  const Domain d = domain(kDomain, {kFirst});
  ASSERT_TRUE(prepare(d));
  EXPECT_EQ(sleeps_, 3);
  EXPECT_THAT(kernel_.log, ElementsAre(fmt::format("borrow 40001 vfio {}", kDomain)));
  ASSERT_TRUE(release(d));
  EXPECT_EQ(kernel_.log.back(), fmt::format("return 40001 {}", kDomain));
  EXPECT_EQ(removed(kFirst), "");
}

TEST_F(HookTest, AnMdevThatGetsNothingIsToldAndTheFunctionReturned) {
  add_mdev(kFirst, false);
  const auto refused = prepare(domain(kDomain, {kFirst}));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              HasSubstr(fmt::format("mediated device {} is there, but is not 40001", kFirst)));
  EXPECT_EQ(kernel_.functions[0].state, static_cast<uint32_t>(PCILEND_FUNCTION_AVAILABLE));
  EXPECT_FALSE(fs::exists(record_path(kDomain)));
}

TEST_F(HookTest, AnMdevThatIsFasterThanTheHookIsUsed) {
  add_mdev(kFirst);
  kernel_.refuse = [this](const std::string& entry) -> Result<> {
    if (!entry.starts_with("borrow ")) return {};
    hold(kernel_.functions[0], fmt::format("mdev:{}", kFirst));
    return fail(ErrorClass::State, "it is borrowed");
  };
  const Domain d = domain(kDomain, {kFirst});
  ASSERT_TRUE(prepare(d));
  ASSERT_TRUE(release(d));
  EXPECT_THAT(kernel_.log, IsEmpty());
}

TEST_F(HookTest, TheNameGoesBeforeWhatItNames) {
  std::string removed_by_then;
  kernel_.refuse = [&](const std::string& entry) -> Result<> {
    if (entry.starts_with("return ")) removed_by_then = removed(kFirst);
    return {};
  };
  const Domain d = domain(kDomain, {kFirst});
  ASSERT_TRUE(prepare(d));
  add_mdev(kFirst);
  ASSERT_TRUE(release(d));
  EXPECT_EQ(removed_by_then, "1");
  EXPECT_EQ(kernel_.log.back(), fmt::format("return 40001 {}", kDomain));
}

TEST_F(HookTest, OneFunctionIsOneDeviceOfADomain) {
  Domain d = domain(kDomain, {kFirst});
  d.functions = {FunctionId{0x40001}};
  d.options->wait = std::chrono::seconds(60);
  const auto refused = prepare(d);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorClass::Usage);
  EXPECT_EQ(refused.error().message,
            fmt::format("the domain has 40001 (Red Hat, Inc. QEMU NVM Express Controller) twice, "
                        "as a PCI device and as mediated device {}: leave one",
                        kFirst));
  EXPECT_EQ(sleeps_, 0);
  EXPECT_THAT(kernel_.log, IsEmpty());
  d.functions = {FunctionId{0x40002}};
  EXPECT_TRUE(prepare(d));
}

TEST_F(HookTest, ASecondDomainIsRefusedAndLeavesTheFirstAlone) {
  ASSERT_TRUE(prepare(domain(kDomain, {kFirst})));
  add_mdev(kFirst);
  kernel_.log.clear();
  Domain second = domain(kOtherDomain, {kFirst});
  second.name = "second";
  const auto refused = prepare(second);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorClass::State);
  EXPECT_EQ(refused.error().message,
            "40001 (Red Hat, Inc. QEMU NVM Express Controller) is in use on this host by domain "
            "'guest': end that first");
  EXPECT_TRUE(release(second));
  EXPECT_THAT(kernel_.log, IsEmpty());
  EXPECT_EQ(removed(kFirst), "");
  EXPECT_TRUE(fs::exists(record_path(kDomain)));
}

TEST_F(HookTest, RefusalsNameTheFunctionAndTheCure) {
  struct {
    std::function<void(Function&)> change;
    const char* message;
  } const cases[] = {
      {[](Function& f) { f.state = PCILEND_FUNCTION_ADDED; },
       "40001 (Red Hat, Inc. QEMU NVM Express Controller) is not available: on node 4 run 'pcilend "
       "available 0000:00:05.0'"},
      {[](Function& f) {
         f.state = PCILEND_FUNCTION_BORROWED;
         f.borrower = 12;
       },
       "40001 (Red Hat, Inc. QEMU NVM Express Controller) is borrowed by node 12: end its use "
       "there first"},
      {[](Function& f) {
         f.state = PCILEND_FUNCTION_BORROWED;
         f.borrower = 8;
         f.owner = "user root";
       },
       "40001 (Red Hat, Inc. QEMU NVM Express Controller) is in use on this host by 'user root': "
       "end that first"},
      {[](Function& f) {
         f.state = PCILEND_FUNCTION_QUARANTINED;
         f.reason = "no answer after FLR";
       },
       "40001 (Red Hat, Inc. QEMU NVM Express Controller) is quarantined, no answer after FLR: on "
       "node 4 run 'pcilend show 40001'; if it waits to be erased, 'pcilend sanitize "
       "0000:00:05.0', "
       "else 'pcilend release-quarantine 0000:00:05.0'"},
      {[](Function& f) { f.state = PCILEND_FUNCTION_RESETTING; },
       "40001 (Red Hat, Inc. QEMU NVM Express Controller) is still resetting: try again, or look "
       "at node 4"},
      {[](Function& f) { f.lender = 8; },
       "40001 (Red Hat, Inc. QEMU NVM Express Controller) is installed in this host at "
       "0000:00:05.0: pass it to the domain as a PCI hostdev"},
      {[](Function& f) { f.uuid.bytes[15] = 9; },
       "no host offers function 70636c64-0000-8000-8000-000000000001 to this one: on its lender "
       "run 'pcilend connect 8' and 'pcilend add' with its address; 'pcilend link' shows the hosts "
       "in reach"},
  };
  const Function original = kernel_.functions[0];
  for (const auto& expected : cases) {
    kernel_.functions[0] = original;
    expected.change(kernel_.functions[0]);
    // The second function is free, and must stay so.
    const auto refused = prepare(domain(kDomain, {kSecond, kFirst}));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message, expected.message);
    EXPECT_THAT(kernel_.log, IsEmpty());
    EXPECT_FALSE(fs::exists(record_path(kDomain)));
  }
}

TEST_F(HookTest, AFunctionBeingResetIsWaitedFor) {
  kernel_.functions[0].state = PCILEND_FUNCTION_FENCING;
  kernel_.on_look = [this] {
    if (sleeps_ == 3) kernel_.functions[0].state = PCILEND_FUNCTION_AVAILABLE;
  };
  EXPECT_TRUE(prepare(domain(kDomain, {kFirst})));
  EXPECT_EQ(sleeps_, 3);
}

TEST_F(HookTest, WaitsAsLongAsTheDomainSays) {
  for (const auto& [seconds, comes] : {std::pair{60, true}, {20, false}, {0, false}}) {
    Function& f = kernel_.functions[0];
    f.state = PCILEND_FUNCTION_BORROWED;
    f.borrower = 12;
    const auto begin = now_;
    kernel_.on_look = [&f, begin, this] {
      if (now_ - begin > std::chrono::seconds(30)) f.state = PCILEND_FUNCTION_AVAILABLE;
    };
    Domain d = domain(kDomain, {kFirst});
    d.options->wait = std::chrono::seconds(seconds);
    const auto done = prepare(d);
    EXPECT_EQ(done.has_value(), comes) << seconds;
    const auto waited = now_ - begin;
    EXPECT_GE(waited, std::chrono::seconds(std::min(seconds, 30)));
    EXPECT_LE(waited, std::chrono::seconds(seconds + 2));
    if (!done) {
      EXPECT_THAT(done.error().message, HasSubstr("is borrowed by node 12"));
    }
    kernel_.on_look = [] {};
    ASSERT_TRUE(release(d));
  }
}

TEST_F(HookTest, WhatWaitingCannotCureIsSaidAtOnce) {
  kernel_.functions[0].lender = 8;
  Domain d = domain(kDomain, {kFirst});
  d.options->wait = std::chrono::seconds(60);
  EXPECT_FALSE(prepare(d));
  EXPECT_EQ(sleeps_, 0);
}

TEST_F(HookTest, OptionsThatCannotBeFollowedKeepItFromStartingOnly) {
  Domain d = domain(kDomain, {kFirst});
  ASSERT_TRUE(prepare(d));
  d.options = fail(ErrorClass::Usage, "wait='x'");
  EXPECT_TRUE(reconcile(d));
  EXPECT_TRUE(release(d));
  EXPECT_EQ(kernel_.log.back(), fmt::format("return 40001 {}", kDomain));
  const auto refused = prepare(d);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "wait='x'");
}

TEST_F(HookTest, WhatCannotBeUndoneIsNotForgottenWhileItWaits) {
  Domain d = choosing({{}, "", 0x1b36, {}, ""});
  d.options->wait = std::chrono::seconds(60);
  // 40001 is borrowed, but the answer is lost; and it can't be returned.
  kernel_.refuse = [this](const std::string& entry) -> Result<> {
    if (entry.starts_with("borrow 40001")) {
      hold(kernel_.functions[0], kDomain);
      return fail(ErrorClass::Unreachable, "no answer to that");
    }
    if (entry.starts_with("return 40001")) return fail(ErrorClass::Unreachable, "no answer");
    return {};
  };
  const auto refused = prepare(d);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "no answer");
  kernel_.refuse = [](const std::string&) { return Result<>(); };
  ASSERT_TRUE(release(d));
  EXPECT_EQ(kernel_.functions[0].state, static_cast<uint32_t>(PCILEND_FUNCTION_AVAILABLE));
}

TEST_F(HookTest, AFailedBorrowRollsTheFirstOneBack) {
  kernel_.refuse = [](const std::string& entry) -> Result<> {
    if (entry.starts_with("borrow 40002"))
      return fail(ErrorClass::Unreachable, "node 4 does not answer");
    return {};
  };
  const Domain d = domain(kDomain, {kFirst, kSecond});
  const auto refused = prepare(d);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "40002 (Red Hat, Inc. QEMU NVM Express Controller): node 4 does not answer");
  EXPECT_EQ(kernel_.functions[0].state, static_cast<uint32_t>(PCILEND_FUNCTION_AVAILABLE));
  EXPECT_FALSE(fs::exists(record_path(kDomain)));
}

TEST_F(HookTest, ABorrowThatIsDoneButCannotBeShownIsReturned) {
  kernel_.refuse = [this](const std::string& entry) -> Result<> {
    if (!entry.starts_with("borrow ")) return {};
    Function& f = kernel_.functions[0];
    f.state = PCILEND_FUNCTION_BORROWED;
    f.borrower = kernel_.node_value.id;
    f.owner = kDomain;
    return tl::unexpected(after_change({ErrorClass::Failure, "Cannot allocate memory"}));
  };
  const auto refused = prepare(domain(kDomain, {kFirst}));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("Cannot allocate memory"));
  EXPECT_EQ(kernel_.functions[0].state, static_cast<uint32_t>(PCILEND_FUNCTION_AVAILABLE));
  EXPECT_FALSE(fs::exists(record_path(kDomain)));
}

TEST_F(HookTest, AFailedCreateReturnsTheFunction) {
  fs::remove_all(root_ / "sys/bus/pcilend/devices/40001/mdev_supported_types");
  const auto refused = prepare(domain(kDomain, {kFirst}));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("modprobe pcilend_mdev"));
  EXPECT_EQ(kernel_.functions[0].state, static_cast<uint32_t>(PCILEND_FUNCTION_AVAILABLE));
  EXPECT_FALSE(fs::exists(record_path(kDomain)));
}

TEST_F(HookTest, WhatCannotBeUndoneIsLeftForTheNextPhase) {
  const Domain d = domain(kDomain, {kFirst, kSecond});
  ASSERT_TRUE(prepare(d));
  add_mdev(kFirst);
  add_mdev(kSecond);
  bool broken = true;
  kernel_.refuse = [&](const std::string& entry) -> Result<> {
    if (broken && entry.starts_with("return 40001"))
      return fail(ErrorClass::Unreachable, "no answer");
    return {};
  };
  const auto stopped = release(d);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().message, "no answer");
  EXPECT_EQ(kernel_.functions[1].state, static_cast<uint32_t>(PCILEND_FUNCTION_AVAILABLE));
  broken = false;
  EXPECT_TRUE(release(d));
  EXPECT_EQ(kernel_.functions[0].state, static_cast<uint32_t>(PCILEND_FUNCTION_AVAILABLE));
  EXPECT_FALSE(fs::exists(record_path(kDomain)));
}

TEST_F(HookTest, ALeaseThatIsOverOrAnothersIsNotReturned) {
  const Domain d = domain(kDomain, {kFirst});
  ASSERT_TRUE(prepare(d));
  kernel_.functions[0].owner = "somebody else";
  kernel_.log.clear();
  EXPECT_TRUE(release(d));
  EXPECT_THAT(kernel_.log, IsEmpty());
  EXPECT_FALSE(fs::exists(record_path(kDomain)));
}

TEST_F(HookTest, AWithdrawnFunctionIsForgotten) {
  const Domain d = domain(kDomain, {kFirst});
  ASSERT_TRUE(prepare(d));
  kernel_.functions.clear();
  EXPECT_TRUE(release(d));
  EXPECT_FALSE(fs::exists(record_path(kDomain)));
}

TEST_F(HookTest, WithoutTheModuleARecordIsForgotten) {
  const Domain d = domain(kDomain, {kFirst});
  ASSERT_TRUE(prepare(d));
  fs::remove_all(root_ / "sys/bus/pcilend");
  EXPECT_TRUE(release(d));
  EXPECT_FALSE(fs::exists(record_path(kDomain)));
}

TEST_F(HookTest, APrepareAfterACrashStartsClean) {
  const Domain d = domain(kDomain, {kFirst, kSecond});
  ASSERT_TRUE(prepare(d));
  kernel_.log.clear();
  ASSERT_TRUE(prepare(domain(kDomain, {kSecond})));
  EXPECT_THAT(kernel_.log, ElementsAre(fmt::format("return 40002 {}", kDomain),
                                       fmt::format("return 40001 {}", kDomain),
                                       fmt::format("borrow 40002 vfio {}", kDomain)));
}

TEST_F(HookTest, ALostOrDamagedRecordIsMadeAnewWhenLibvirtdIsBack) {
  const Domain d = domain(kDomain, {kFirst, kSecond});
  for (const char* left : {"", "{\"version\":1"}) {
    ASSERT_TRUE(prepare(d));
    add_mdev(kFirst);
    kernel_.functions[1].owner = "somebody else";
    fs::remove(record_path(kDomain));
    if (*left != 0) {
      ASSERT_TRUE(
          environment_.replace_file(fmt::format("/run/pcilend/domains/{}.json", kDomain), left));
    }
    ASSERT_TRUE(reconcile(d));
    const auto record = load_record(environment_, parse_uuid(kDomain).value());
    ASSERT_TRUE(record && *record);
    ASSERT_EQ((*record)->functions.size(), 1u) << "what is another's stays so";
    EXPECT_EQ(to_string((*record)->functions[0].mdev.value()), kFirst);
    EXPECT_TRUE((*record)->functions[0].created);
    ASSERT_TRUE(release(d));
    EXPECT_EQ(kernel_.log.back(), fmt::format("return 40001 {}", kDomain));
    kernel_.functions[1].owner.clear();
    kernel_.functions[1].state = PCILEND_FUNCTION_AVAILABLE;
    fs::remove_all(root_ / "sys/bus/mdev/devices" / kFirst);
  }
}

TEST_F(HookTest, AReconnectChangesNoRecordThatIsWhole) {
  const Domain d = domain(kDomain, {kFirst});
  add_mdev(kFirst);
  ASSERT_TRUE(prepare(d));
  kernel_.log.clear();
  ASSERT_TRUE(reconcile(d));
  EXPECT_THAT(kernel_.log, IsEmpty());
  const auto record = load_record(environment_, parse_uuid(kDomain).value());
  ASSERT_TRUE(record && *record);
  ASSERT_EQ((*record)->functions.size(), 1u);
  EXPECT_FALSE((*record)->functions[0].created) << "not made by the hook, so not its to remove";
  EXPECT_TRUE(reconcile(domain(kOtherDomain, {})));
  EXPECT_FALSE(fs::exists(record_path(kOtherDomain)));
}

// A hook of a start that libvirtd has forgotten, as it crashed, and the one of the next start.
TEST_F(HookTest, AnOrphanTakesNothingAwayFromTheNextStart) {
  Function& f = kernel_.functions[0];
  f.state = PCILEND_FUNCTION_BORROWED;
  f.borrower = 12;
  Domain d = domain(kDomain, {kFirst});
  d.options->wait = std::chrono::seconds(60);
  auto orphan = context();
  bool gone = false;
  orphan.abandoned = [&gone] { return gone; };
  bool second_waited = false;
  on_sleep_ = [&] {
    if (gone) return;
    gone = true;
    f.state = PCILEND_FUNCTION_AVAILABLE;
    f.borrower.reset();
    // The next start, while the orphan is between two attempts.
    auto next = context();
    const auto begin = now_;
    const auto refused = prepare_domain(next, d);
    second_waited = now_ - begin >= std::chrono::seconds(10);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("former start or stop is still at work"));
  };
  const auto left = prepare_domain(orphan, d);
  ASSERT_FALSE(left);
  EXPECT_EQ(left.error().message, "libvirtd is gone: the domain is not started");
  EXPECT_TRUE(second_waited);
  EXPECT_EQ(f.state, static_cast<uint32_t>(PCILEND_FUNCTION_AVAILABLE));
  EXPECT_FALSE(fs::exists(record_path(kDomain)));
  EXPECT_TRUE(prepare(d));
  EXPECT_EQ(f.owner, kDomain);
}

// A child that hangs in the kernel, in a write to create, has the domain's lock until it is done.
TEST_F(HookTest, WhatAHungStepWorksOnIsNotForgotten) {
  const Domain d = domain(kDomain, {kFirst});
  ASSERT_TRUE(prepare(d));
  add_mdev(kFirst);
  kernel_.log.clear();
  UniqueFd hung(::open((root_ / "run/pcilend/locks" / kDomain).c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(hung);
  ASSERT_EQ(::flock(hung.get(), LOCK_EX | LOCK_NB), 0);
  const auto refused = release(d);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("former start or stop is still at work"));
  EXPECT_EQ(removed(kFirst), "");
  EXPECT_THAT(kernel_.log, IsEmpty());
  EXPECT_TRUE(fs::exists(record_path(kDomain)));
  hung.reset();
  EXPECT_TRUE(release(d));
  EXPECT_EQ(removed(kFirst), "1");
  EXPECT_EQ(kernel_.log.back(), fmt::format("return 40001 {}", kDomain));
  EXPECT_FALSE(fs::exists(record_path(kDomain)));
}

TEST_F(HookTest, OnlyWhatTimeCanChangeIsWaitedFor) {
  Domain d = domain(kDomain, {kFirst});
  d.options->wait = std::chrono::seconds(60);
  const auto waited = [&] {
    const auto begin = now_;
    EXPECT_FALSE(prepare(d));
    return std::chrono::duration_cast<std::chrono::seconds>(now_ - begin).count();
  };
  kernel_.functions[0].state = PCILEND_FUNCTION_QUARANTINED;
  EXPECT_EQ(waited(), 0);
  kernel_.functions[0].state = PCILEND_FUNCTION_ADDED;
  EXPECT_LE(waited(), 12) << "its lender may be booting";
  kernel_.functions[0].state = PCILEND_FUNCTION_AVAILABLE;
  fs::remove_all(root_ / "sys/bus/pcilend/devices/40001/mdev_supported_types");
  EXPECT_EQ(waited(), 0) << "pcilend_mdev.ko is not loaded";
  for (const auto kind : {ErrorClass::Permission, ErrorClass::Unsupported}) {
    kernel_.refuse = [kind](const std::string&) -> Result<> { return fail(kind, "no"); };
    EXPECT_EQ(waited(), 0);
  }
  kernel_.refuse = [](const std::string&) -> Result<> {
    return fail(ErrorClass::Unreachable, "node 4 does not answer");
  };
  EXPECT_GE(waited(), 60);
  kernel_.functions.clear();
  EXPECT_GE(waited(), 60) << "its lender is not there yet";
}

TEST_F(HookTest, DomainsOfUsersAreToldWhereTheyCanBorrow) {
  auto c = context();
  c.privileged = false;
  EXPECT_TRUE(prepare_domain(c, domain(kDomain, {})));
  const auto refused = prepare_domain(c, domain(kDomain, {kFirst}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorClass::Permission);
  EXPECT_THAT(refused.error().message, HasSubstr("qemu:///system"));
  EXPECT_TRUE(reconcile_domain(c, domain(kDomain, {kFirst})));
  EXPECT_EQ(kernel_.opened, 0);
}

TEST_F(HookTest, AfterALostRecordADefinedMdevIsNotTakenForOurs) {
  const Domain d = domain(kDomain, {kFirst});
  ASSERT_TRUE(prepare(d));
  add_mdev(kFirst);
  touch(fmt::format("etc/mdevctl.d/0000:00:04.0/{}", kFirst));
  fs::remove(record_path(kDomain));
  ASSERT_TRUE(reconcile(d));
  ASSERT_TRUE(release(d));
  EXPECT_EQ(removed(kFirst), "");
}

// 'pcilend borrow --frontend vfio', as for Nova, which counts PCI devices that are there.
TEST_F(HookTest, WhatIsBorrowedForVfioAndNotOpenIsUsedAsItIs) {
  Function& f = kernel_.functions[0];
  hold(f, "user root");
  f.frontend = "vfio";
  f.virtual_address = "8004:01:00.0";
  // A kernel without groups: of those, files in a test can't be busy.
  touch("sys/bus/pci/devices/8004:01:00.0/vfio-dev/vfio7/dev");
  touch("dev/vfio/devices/vfio7");
  Domain d = domain(kDomain, {});
  d.functions = {FunctionId{0x40001}};
  ASSERT_TRUE(prepare(d));
  ASSERT_TRUE(release(d));
  EXPECT_THAT(kernel_.log, IsEmpty()) << "it stays as it is";
  EXPECT_EQ(f.owner, "user root");

  touch("proc/812/comm");
  std::ofstream(root_ / "proc/812/comm") << "qemu-system-x86\n";
  fs::create_directories(root_ / "proc/812/fd");
  fs::create_symlink(root_ / "dev/vfio/devices/vfio7", root_ / "proc/812/fd/23");
  auto refused = prepare(d);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "40001 (Red Hat, Inc. QEMU NVM Express Controller) is borrowed on this host for 'user "
            "root', and qemu-system-x86 (pid 812) has it: end that first");
  fs::remove_all(root_ / "proc");

  const Choice any{{}, "", 0x1b36, {}, ""};
  ASSERT_TRUE(prepare(choosing(any)));
  EXPECT_THAT(kernel_.log, ElementsAre(fmt::format("borrow 40002 vfio {}", kDomain)))
      << "a choice leaves it to those who name it";
  ASSERT_TRUE(release(choosing(any)));
  f.frontend = "shadow";
  EXPECT_FALSE(prepare(d));
}

TEST_F(HookTest, ADamagedRecordIsReported) {
  ASSERT_TRUE(environment_.replace_file(fmt::format("/run/pcilend/domains/{}.json", kDomain),
                                        "{\"version\":1"));
  for (const auto& result : {prepare(domain(kDomain, {kFirst})), release(domain(kDomain, {}))}) {
    ASSERT_FALSE(result);
    EXPECT_THAT(result.error().message, HasSubstr("damaged"));
  }
  EXPECT_EQ(kernel_.opened, 0);
}

TEST_F(HookTest, RecordsOfAnotherShapeAreRefused) {
  const std::string path = fmt::format("/run/pcilend/domains/{}.json", kDomain);
  for (
      const char* text :
      {"", "[]", "{}",
       R"({"version":2,"domain":"2f1e6b1a-4d0c-4f6c-9a51-0d5a5f1f7a01","functions":[]})",
       R"({"version":1,"domain":5,"functions":[]})",
       R"({"version":1,"domain":"2f1e6b1a-4d0c-4f6c-9a51-0d5a5f1f7a02","functions":[]})",
       R"({"version":1,"domain":"2f1e6b1a-4d0c-4f6c-9a51-0d5a5f1f7a01","functions":[1]})",
       R"({"version":1,"domain":"2f1e6b1a-4d0c-4f6c-9a51-0d5a5f1f7a01","functions":[{"id":1}]})"}) {
    ASSERT_TRUE(environment_.replace_file(path, text));
    EXPECT_FALSE(load_record(environment_, parse_uuid(kDomain).value())) << text;
  }
}

}  // namespace
}  // namespace pcilend
