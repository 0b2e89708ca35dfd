// SPDX-License-Identifier: GPL-2.0-or-later
// From a configuration and the state of a host to what is done there.
#include "pcilend/policy/restore.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "fake_client.h"
#include "pcilend/policy/files.h"
#include "root.h"

namespace pcilend::policy::test {
namespace {

using pcilend::test::FakeClient;
using pcilend::test::FakeKernel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Node 8 with two NVMe drives, a network card, a bridge, and a link to node 4.
class RestoreTest : public RootTest {
 protected:
  void SetUp() override {
    RootTest::SetUp();
    plug("0000:00:10.0", {.serial = 1});
    plug("0000:00:11.0", {.serial = 2});
    plug("0000:00:12.0", {0x8086, 0x10d3, 0x020000});
    plug("0000:00:1c.0", {0x1b36, 0x000c, 0x060400, 0, 1});
    Link link;
    link.state = PCILEND_LINK_UP;
    link.peer = 4;
    kernel_.links = {link};
  }

  void plug(const std::string& bdf, const Card& card) {
    install(bdf, card);
    Function f;
    f.bdf = bdf;
    f.uuid = uuid(bdf);
    f.vendor = card.vendor;
    f.device = card.device;
    kernel_.installed.push_back(f);
  }

  Uuid uuid(const std::string& bdf) {
    const auto all = local_functions(environment(), 8).value();
    for (const auto& f : all)
      if (to_string(f.address) == bdf) return *f.uuid;
    ADD_FAILURE() << bdf;
    return {};
  }

  FunctionEntry entry(const std::string& bdf, bool available) {
    FunctionEntry e;
    e.uuid = uuid(bdf);
    e.address = at(bdf);
    e.available = available;
    e.place = "saved.json: functions[" + bdf.substr(8) + "]";
    return e;
  }

  static Filter filter(FilterKind kind, const Pattern& pattern) {
    return {kind,
            pattern,
            std::nullopt,
            std::nullopt,
            false,
            kFiltersFile,
            fmt::format("filters.json: filters.{}[0]", name_of(kind))};
  }

  // What was asked of the kernel; `steps_` is what was reported.
  std::vector<std::string> restored(const Config& config, const RestoreOptions& options = {}) {
    kernel_.log.clear();
    FakeClient client(kernel_);
    const Environment env = environment();
    const Host host{client, env, [this](const PciAddress& address) -> Result<InUse> {
                      return use_[to_string(address)];
                    }};
    auto steps = restore(host, config, options);
    EXPECT_TRUE(steps) << (steps ? "" : steps.error().message);
    steps_ = steps ? std::move(*steps) : std::vector<Step>();
    return kernel_.log;
  }

  // The reasons of steps with that outcome.
  std::vector<std::string> reasons(Outcome outcome) {
    std::vector<std::string> found;
    for (const auto& step : steps_)
      if (step.outcome == outcome)
        found.push_back(fmt::format("{} {}: {}", name_of(step.action),
                                    step.address ? to_string(*step.address) : "", step.reason));
    return found;
  }

  FakeKernel kernel_;
  std::map<std::string, InUse> use_;
  std::vector<Step> steps_;
};

TEST_F(RestoreTest, MakesEverythingAsSavedAndThenNothing) {
  Config config;
  config.connections = {4, 12};
  config.functions = {entry("0000:00:11.0", true), entry("0000:00:10.0", false)};
  config.functions[0].id = FunctionId{0x80001};
  config.functions[0].label = "lab";
  config.functions[0].allow = Audience{false, {4}};
  config.functions[1].id = FunctionId{0x80007};
  EXPECT_THAT(restored(config),
              ElementsAre("connect 4", "connect 12", "add 0000:00:11.0 as 80001 label lab allow 4",
                          "add 0000:00:10.0 as 80007", "available 0000:00:11.0"));
  EXPECT_THAT(reasons(Outcome::Failed), IsEmpty());
  EXPECT_EQ(steps_[2].place, "saved.json: functions[11.0]");

  kernel_.links[0].connected = true;
  EXPECT_THAT(restored(config), ElementsAre("connect 12")) << "no link tells about node 12";
  for (const uint32_t state : {PCILEND_FUNCTION_BORROWED, PCILEND_FUNCTION_RESETTING}) {
    kernel_.functions[0].state = state;
    EXPECT_THAT(restored(config), ElementsAre("connect 12"));
  }
}

TEST_F(RestoreTest, KindsComeFirstAndNotWithOneFunction) {
  make_kind("8000:00:01.0", "storage device=::01xx");
  Config config;
  config.connections = {4};
  config.functions = {entry("0000:00:11.0", false)};
  config.kinds = {{"fast", "", "", "x", "fast label=x", "kinds.json: kinds[0]"}};
  restored(config, {.device = at("0000:00:11.0")});
  ASSERT_EQ(steps_.size(), 1u);
  restored(config);
  ASSERT_EQ(steps_.size(), 2u);
  EXPECT_EQ(steps_[0].action, Action::AddKind);
  EXPECT_EQ(steps_[0].outcome, Outcome::Done);
  EXPECT_EQ(steps_[0].place, "kinds.json: kinds[0]");
  EXPECT_EQ(steps_[1].action, Action::Connect);
}

TEST_F(RestoreTest, APinnedNodeIsConnectedByItsPinsOnly) {
  Config config;
  config.connections = {4, 12};
  config.pins = {{at("0000:00:04.0"), 4, "saved.json: pins[0]"},
                 {at("0000:00:05.0"), 4, "saved.json: pins[1]"}};
  kernel_.links[0].adapter = "0000:00:04.0";
  kernel_.links[0].connected = true;
  EXPECT_THAT(restored(config),
              ElementsAre("connect 4 at 0000:00:04.0", "connect 4 at 0000:00:05.0", "connect 12"));
  EXPECT_EQ(steps_[1].place, "saved.json: pins[1]");
  kernel_.links[0].pinned = 4;
  EXPECT_THAT(restored(config), ElementsAre("connect 4 at 0000:00:05.0", "connect 12"));

  kernel_.links.clear();
  kernel_.refuse = [](const std::string& entry) -> Result<> {
    if (entry.find(" at ") != std::string::npos)
      return fail(ErrorClass::NotFound, "no NTB adapter at that address");
    return {};
  };
  EXPECT_THAT(restored(config), ElementsAre("connect 12")) << "not without its pins";
  EXPECT_THAT(reasons(Outcome::Failed), ElementsAre("connect : no NTB adapter at that address",
                                                    "connect : no NTB adapter at that address"));
}

TEST_F(RestoreTest, ADryRunChangesNothing) {
  Config config;
  config.connections = {4};
  config.functions = {entry("0000:00:10.0", true)};
  EXPECT_THAT(restored(config, {.dry_run = true}), IsEmpty());
  ASSERT_EQ(steps_.size(), 3u);
  for (const auto& step : steps_) EXPECT_EQ(step.outcome, Outcome::Planned);
  EXPECT_EQ(steps_[1].id, FunctionId{0x80001});
}

TEST_F(RestoreTest, WhatDiffersIsChanged) {
  Config config;
  config.functions = {entry("0000:00:10.0", true)};
  config.functions[0].id = FunctionId{0x80001};
  restored(config);
  config.functions[0].available = false;
  config.functions[0].label = "new";
  config.functions[0].allow = Audience{false, {4, 12}};
  kernel_.functions[0].allowed = {12, 4};
  EXPECT_THAT(restored(config), ElementsAre("label 0000:00:10.0 new", "unavailable 0000:00:10.0"));
  config.functions[0].allow = Audience{};
  EXPECT_THAT(restored(config), ElementsAre("allow 0000:00:10.0 all"));
  config.functions[0].label.reset();
  config.functions[0].allow.reset();
  EXPECT_THAT(restored(config), IsEmpty()) << "what is absent stays as it is";
}

TEST_F(RestoreTest, HowMuchMemoryIsBesideItIsKept) {
  Config config;
  config.functions = {entry("0000:00:11.0", true)};
  config.functions[0].near = 65536;
  EXPECT_THAT(restored(config),
              ElementsAre("add 0000:00:11.0 as 80001", "available near 65536 0000:00:11.0"));
  FakeClient client(kernel_);
  const auto state = present_state(client, {});
  ASSERT_TRUE(state) << state.error().message;
  EXPECT_EQ(state->functions.at(0).near, 65536U);
}

TEST_F(RestoreTest, WhatIsErasedAfterALeaseStaysSo) {
  Config config;
  config.functions = {entry("0000:00:11.0", true)};
  config.functions[0].sanitize = true;
  EXPECT_THAT(restored(config),
              ElementsAre("add 0000:00:11.0 as 80001", "available sanitize 0000:00:11.0"));
  EXPECT_THAT(restored(config), IsEmpty());
  EXPECT_THAT(steps_, IsEmpty());

  FakeClient client(kernel_);
  const auto state = present_state(client, {});
  ASSERT_TRUE(state) << state.error().message;
  EXPECT_TRUE(state->functions.at(0).sanitize);

  config.functions[0].sanitize = false;
  EXPECT_THAT(restored(config), IsEmpty()) << "it may be borrowed";
  EXPECT_THAT(
      reasons(Outcome::Failed),
      ElementsAre("available 0000:00:11.0: it is available and erased after a lease "
                  "(sanitize): run 'pcilend unavailable 0000:00:11.0' and restore again, or "
                  "change the entry"));
}

TEST_F(RestoreTest, WhatIsLentDirectStaysSo) {
  Config config;
  config.functions = {entry("0000:00:11.0", true)};
  config.functions[0].direct = true;
  EXPECT_THAT(restored(config),
              ElementsAre("add 0000:00:11.0 as 80001", "available direct 0000:00:11.0"));
  EXPECT_THAT(restored(config), IsEmpty());
  EXPECT_THAT(steps_, IsEmpty());

  FakeClient client(kernel_);
  const auto state = present_state(client, {});
  ASSERT_TRUE(state) << state.error().message;
  EXPECT_TRUE(state->functions.at(0).direct);

  config.functions[0].direct = false;
  EXPECT_THAT(restored(config), IsEmpty()) << "it may be borrowed";
  EXPECT_THAT(
      reasons(Outcome::Failed),
      ElementsAre("available 0000:00:11.0: it is available without an IOMMU (direct): run 'pcilend "
                  "unavailable 0000:00:11.0' and restore again, or change the entry"));
}

TEST_F(RestoreTest, ARenumberedBusDoesNotLendTheWrongDevice) {
  Config config;
  config.functions = {entry("0000:00:10.0", true), entry("0000:00:11.0", true)};
  unplug("0000:00:10.0");
  unplug("0000:00:11.0");
  plug("0000:00:10.0", {.serial = 2});
  EXPECT_THAT(restored(config), ElementsAre("add 0000:00:10.0 as 80001", "available 0000:00:10.0"));
  EXPECT_THAT(reasons(Outcome::Failed),
              ElementsAre("find 0000:00:10.0: it is not in this host: 0000:00:10.0 is another "
                          "function (1b36:0010, UUID " +
                          to_string(uuid("0000:00:10.0")) + ")"));

  FunctionEntry by_address;
  by_address.address = at("0000:00:10.0");
  by_address.device = DeviceIds{0x8086, 0x10d3};
  config.functions = {by_address};
  EXPECT_THAT(restored(config), IsEmpty());
  EXPECT_THAT(reasons(Outcome::Failed),
              ElementsAre("find 0000:00:10.0: it is 1b36:0010, not 8086:10d3: addresses have "
                          "changed; write its 'uuid' instead"));
  config.functions[0].address = at("0000:07:00.0");
  restored(config);
  EXPECT_THAT(reasons(Outcome::Failed),
              ElementsAre("find 0000:07:00.0: there is no PCI function at this address"));
}

TEST_F(RestoreTest, WithoutItsSerialNumberNothingIsGuessed) {
  Config config;
  config.functions = {entry("0000:00:10.0", true)};
  fs::resize_file(root_ / device("0000:00:10.0") / "config", 64);
  EXPECT_TRUE(restored(config).empty());
  EXPECT_THAT(reasons(Outcome::Failed), ElementsAre(HasSubstr("it is not in this host")));
}

TEST_F(RestoreTest, TwinsAreToldApartByTheirAddress) {
  plug("0000:00:13.0", {.serial = 1});
  Config config;
  config.functions = {entry("0000:00:13.0", false)};
  EXPECT_THAT(restored(config), ElementsAre("add 0000:00:13.0 as 80001"));
  config.functions.push_back(config.functions[0]);
  restored(config);
  EXPECT_THAT(reasons(Outcome::Failed),
              ElementsAre(HasSubstr("another entry names this function")));
}

TEST_F(RestoreTest, OneFailureDoesNotStopTheOthers) {
  kernel_.refuse = [](const std::string& entry) -> Result<> {
    if (entry.starts_with("add 0000:00:10.0"))
      return fail(ErrorClass::State, "0000:00:12.0 has this id");
    return {};
  };
  Config config;
  config.functions = {entry("0000:00:10.0", true), entry("0000:00:11.0", true)};
  EXPECT_THAT(restored(config), ElementsAre("add 0000:00:11.0 as 80002", "available 0000:00:11.0"));
  EXPECT_THAT(reasons(Outcome::Failed), ElementsAre("add 0000:00:10.0: 0000:00:12.0 has this id"));
}

TEST_F(RestoreTest, IdsAreKeptAndReserved) {
  Config config;
  config.functions = {entry("0000:00:10.0", false), entry("0000:00:11.0", false)};
  config.functions[0].id = FunctionId{0x40001};
  config.functions[1].id = FunctionId{0x80001};
  config.filters = {filter(FilterKind::Add, {"", "8086:"})};
  EXPECT_THAT(restored(config, {.device = at("0000:00:12.0")}),
              ElementsAre("add 0000:00:12.0 as 80002"))
      << "80001 is for another function";
  restored(config);
  EXPECT_THAT(reasons(Outcome::Failed),
              ElementsAre("find 0000:00:10.0: id 40001 is of node 4, this is node 8: leave 'id' "
                          "out, or correct it"));
  config.functions[1].id = FunctionId{0x80003};
  EXPECT_THAT(restored(config), IsEmpty());
  EXPECT_THAT(reasons(Outcome::Failed)[1],
              HasSubstr("it has id 80001: run 'pcilend remove 0000:00:11.0' and restore again"));
}

TEST_F(RestoreTest, FiltersApplyToWhatNoEntryNames) {
  Config config;
  config.filters = {filter(FilterKind::Add, {"", "8086:"}),
                    filter(FilterKind::Available, {"", "::0108"}),
                    filter(FilterKind::Available, {"00:11.0", ""}),
                    filter(FilterKind::Unavailable, {"00:10.0", ""})};
  config.filters[2].label = "fast";
  config.filters[2].allow = Audience{false, {4}};
  EXPECT_THAT(restored(config), ElementsAre("add 0000:00:11.0 as 80001 label fast allow 4",
                                            "add 0000:00:12.0 as 80002", "available 0000:00:11.0"));
  EXPECT_THAT(restored(config), IsEmpty());
}

TEST_F(RestoreTest, FiltersNeverTouchBridges) {
  Config config;
  config.filters = {filter(FilterKind::Add, {"00:", ""})};
  EXPECT_EQ(restored(config).size(), 3u);
}

TEST_F(RestoreTest, UnavailableWins) {
  Config config;
  config.functions = {entry("0000:00:10.0", true)};
  config.filters = {filter(FilterKind::Available, {"", "::0108"})};
  restored(config);
  config.filters.push_back(filter(FilterKind::Unavailable, {"", "1b36:"}));
  EXPECT_THAT(restored(config),
              ElementsAre("unavailable 0000:00:10.0", "unavailable 0000:00:11.0"));
  EXPECT_EQ(steps_[0].place, "filters.json: filters.unavailable[0]");
  EXPECT_THAT(restored(config), IsEmpty());
  EXPECT_THAT(reasons(Outcome::LeftAlone),
              ElementsAre("available 0000:00:10.0: filters.json: filters.unavailable[0] excludes "
                          "it"));
}

TEST_F(RestoreTest, ADiskInUseIsLeftAlone) {
  use_["0000:00:10.0"].disks = {"/dev/nvme0n1 is mounted on /data: run 'umount /data'"};
  Config config;
  config.filters = {filter(FilterKind::Available, {"00:10.0", ""})};
  EXPECT_THAT(restored(config), IsEmpty()) << "nor is it shown to others";
  EXPECT_THAT(reasons(Outcome::LeftAlone),
              ElementsAre("available 0000:00:10.0: /dev/nvme0n1 is mounted on /data: run 'umount "
                          "/data', or configure 'force'"));
  config.filters[0].force = true;
  EXPECT_THAT(restored(config), ElementsAre("add 0000:00:10.0 as 80001", "available 0000:00:10.0"));

  use_["0000:00:11.0"].disks = use_["0000:00:10.0"].disks;
  config = {};
  config.functions = {entry("0000:00:11.0", true)};
  EXPECT_THAT(restored(config), ElementsAre("add 0000:00:11.0 as 80002"));
  EXPECT_THAT(reasons(Outcome::Failed), ElementsAre(HasSubstr("/dev/nvme0n1 is mounted")));
  config.functions[0].force = true;
  EXPECT_THAT(restored(config), ElementsAre("available 0000:00:11.0"));
  EXPECT_THAT(reasons(Outcome::Done), ElementsAre(HasSubstr("is mounted on /data")))
      << "what was lost is said";
}

TEST_F(RestoreTest, AnInterfaceThatIsUpIsTakenOnlyIfItIsNamed) {
  use_["0000:00:12.0"].interfaces = {"eth0"};
  Config config;
  config.filters = {filter(FilterKind::Available, {"", "::0200"})};
  EXPECT_THAT(restored(config), IsEmpty());
  EXPECT_THAT(reasons(Outcome::LeftAlone), ElementsAre(HasSubstr("ip link set eth0 down")));
  config.functions = {entry("0000:00:12.0", true)};
  EXPECT_THAT(restored(config), ElementsAre("add 0000:00:12.0 as 80001", "available 0000:00:12.0"));
}

TEST_F(RestoreTest, OneDeviceAlone) {
  Config config;
  config.connections = {4};
  config.functions = {entry("0000:00:10.0", true), entry("0000:00:11.0", true)};
  unplug("0000:00:10.0");
  EXPECT_THAT(restored(config, {.device = at("0000:00:11.0")}),
              ElementsAre("add 0000:00:11.0 as 80001", "available 0000:00:11.0"));
  EXPECT_THAT(reasons(Outcome::Failed), IsEmpty()) << "the other one is not asked for";
  EXPECT_THAT(restored(config, {.device = at("0000:00:12.0")}), IsEmpty());

  FakeClient client(kernel_);
  const Environment env = environment();
  const auto gone = restore({client, env, {}}, config, {.device = at("0000:00:10.0")});
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().kind, ErrorClass::NotFound);
  config.filters = {filter(FilterKind::Add, {"", "8086:"})};
  EXPECT_THAT(restored(config, {.only = Pattern{"", "8086:"}}),
              ElementsAre("add 0000:00:12.0 as 80002"));
}

// A host that boots asks for each of its functions, and reading a config space wakes a device.
TEST_F(RestoreTest, OneDeviceAloneIsAllThatIsRead) {
  Config config;
  config.functions = {entry("0000:00:10.0", true)};
  config.filters = {filter(FilterKind::Add, {"", "8086:"})};
  const fs::path other = root_ / device("0000:00:11.0") / "config";
  fs::remove(other);
  ASSERT_EQ(::mkfifo(other.c_str(), 0600), 0);  // who reads it waits
  FakeClient client(kernel_);
  const Environment env = environment();
  const Host host{client, env, [](const PciAddress&) { return InUse{}; }};
  EXPECT_TRUE(concerns(host, config, at("0000:00:10.0")).value());
  EXPECT_TRUE(concerns(host, config, at("0000:00:12.0")).value());
  config.filters.clear();
  EXPECT_FALSE(concerns(host, config, at("0000:00:12.0")).value());
  EXPECT_THAT(restored(config, {.device = at("0000:00:10.0")}),
              ElementsAre("add 0000:00:10.0 as 80001", "available 0000:00:10.0"));
}

TEST_F(RestoreTest, WhatAVmHasIsNotTakenEvenByForce) {
  use_["0000:00:10.0"].vfio = "qemu-system-x86 (pid 812)";
  Config config;
  config.functions = {entry("0000:00:10.0", true)};
  config.functions[0].force = true;
  EXPECT_THAT(restored(config), ElementsAre("add 0000:00:10.0 as 80001"));
  EXPECT_THAT(reasons(Outcome::Failed), ElementsAre(HasSubstr("qemu-system-x86 (pid 812)")));
}

TEST_F(RestoreTest, WhoseSerialNumberCannotBeReadIsSaid) {
  Config config;
  config.functions = {entry("0000:00:10.0", true), entry("0000:00:11.0", false)};
  config.functions[0].device = DeviceIds{0x1b36, 0x0010};
  config.functions[1].device = DeviceIds{0x8086, 0x10d3};
  // Nobody reads behind the headers of these: one is dead, one was taken out.
  fs::remove_all(root_ / device("0000:00:10.0") / "subsystem_vendor");
  unplug("0000:00:11.0");
  restored(config);
  EXPECT_THAT(reasons(Outcome::Failed),
              ElementsAre(HasSubstr("it may be 0000:00:10.0 (1b36:0010), whose serial number"),
                          HasSubstr("it is not in this host")));
}

TEST_F(RestoreTest, OnlyItsOwnerMayHoldTheLock) {
  const auto lock = lock_policy(environment(), [](std::chrono::milliseconds) {});
  ASSERT_TRUE(lock);
  EXPECT_EQ(fs::status(root_ / "run/pcilend/policy.lock").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(RestoreTest, WithoutANodeIdTheCureIsNamed) {
  kernel_.node_value.id = 0;
  FakeClient client(kernel_);
  const Environment env = environment();
  const auto refused = restore({client, env, {}}, {}, {});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("options pcilend node=N"));
}

TEST_F(RestoreTest, WhatIsSavedIsWhatIsRestored) {
  Config config;
  config.connections = {4, 12, 16};
  config.functions = {entry("0000:00:11.0", true), entry("0000:00:10.0", false)};
  config.functions[0].force = true;
  config.functions[0].label = "lab";
  config.functions[1].allow = Audience{false, {12, 4}};
  restored(config);
  kernel_.links[0].connected = true;
  Link down;
  Link other;
  other.peer = 16;
  Link pinned;  // its node is not there now
  pinned.adapter = "0000:00:05.0";
  pinned.pinned = 20;
  kernel_.links.insert(kernel_.links.end(), {down, other, pinned});
  config.pins = {{at("0000:00:05.0"), 4, ""}, {at("0000:00:09.0"), 24, ""}};
  kernel_.functions[0].state = PCILEND_FUNCTION_BORROWED;
  Function remote;
  remote.lender = 4;
  kernel_.functions.push_back(remote);

  FakeClient client(kernel_);
  const auto state = present_state(client, config);
  ASSERT_TRUE(state) << state.error().message;
  EXPECT_THAT(state->connections, ElementsAre(4, 12, 20)) << "16 is there, and not connected";
  EXPECT_EQ(format_config(*state), golden("state.json", format_config(*state)));

  kernel_.functions.clear();
  EXPECT_THAT(
      restored(*state),
      ElementsAre("connect 24 at 0000:00:09.0", "connect 12", "add 0000:00:11.0 as 80001 label lab",
                  "add 0000:00:10.0 as 80002 allow 4,12", "available 0000:00:11.0"));
}

}  // namespace
}  // namespace pcilend::policy::test
