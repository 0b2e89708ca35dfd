// SPDX-License-Identifier: GPL-2.0-or-later
// The rogue node: two of them, joined by a fabric, that lend to each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/pci_regs.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "rogue/attacks.h"
#include "rogue/control.h"
#include "server.h"

namespace pcilend::rogue {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using fabric::EventLoop;
using fabric::Fabric;
using fabric::Product;
using nlohmann::json;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr uint16_t kVictim = 4;
constexpr uint16_t kRogue = 8;
constexpr uint32_t kFunction = kVictim << 16 | 1;

// A fabric of two hosts on a thread of its own.
class FabricThread {
 public:
  FabricThread(const fs::path& directory, const fabric::FabricOptions& options)
      : log_([] { return std::chrono::steady_clock::now(); }, [](std::string_view) {}),
        fabric_(
            options, [] { return std::chrono::steady_clock::now(); }, log_),
        end_(::eventfd(0, EFD_CLOEXEC)),
        loop_(EventLoop::create(fabric_.timers(), {}).value()) {
    EXPECT_TRUE(loop_->add(end_.get(), EPOLLIN, [this](uint32_t) { loop_->stop(); }));
    server_ = fabric::Server::create(directory, fabric_, *loop_, log_).value();
    thread_ = std::thread([this] { loop_->run(); });
  }
  ~FabricThread() {
    const uint64_t one = 1;
    EXPECT_EQ(::write(end_.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
    thread_.join();
  }

 private:
  fabric::Log log_;
  Fabric fabric_;
  UniqueFd end_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<fabric::Server> server_;
  std::thread thread_;
};

class RogueTest : public testing::TestWithParam<Product> {
 protected:
  void SetUp() override {
    char name[] = "/tmp/rogue-test.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
    fabric::FabricOptions options;
    options.products = {GetParam()};
    fabric_.emplace(directory_, options);
    victim_port_ = Port::connect(directory_ / "host1-host2.sock", Node::memory()).value();
    victim_ = Node::make(*victim_port_, kVictim).value();
    ASSERT_TRUE(rogue_.connect("host1", directory_ / "host2-host1.sock", kRogue));
    rogue_.pump = [this] { pump(); };
    victim_->pump = [this] { pump(); };
    victim_->join(kVictim);
  }
  void TearDown() override {
    fabric_.reset();
    fs::remove_all(directory_);
  }

  void pump() {
    rogue_.step();
    victim_->step(std::chrono::steady_clock::now());
  }
  bool eventually(const std::function<bool()>& condition) {
    for (const auto end = std::chrono::steady_clock::now() + 20s;
         std::chrono::steady_clock::now() < end; ::usleep(1000)) {
      pump();
      if (condition()) return true;
    }
    return false;
  }
  json act(const std::string& op, uint64_t value = 0, uint64_t ms = 50) {
    const json request = {{"op", op}, {"victim", "host1"}, {"value", value}, {"ms", ms}};
    return rogue_.carry_out(request.dump());
  }
  json link() { return rogue_.carry_out(R"({"op":"status"})")["links"][0]; }
  void come_up() {
    ASSERT_EQ(act("join")["ok"], true);
    ASSERT_TRUE(eventually([this] { return victim_->up() && link()["up"] == true; }));
  }

  fs::path directory_;
  std::optional<FabricThread> fabric_;
  std::unique_ptr<Port> victim_port_;
  std::unique_ptr<Node> victim_;
  Rogue rogue_;
};

TEST_P(RogueTest, IsAnHonestNodeAtFirst) {
  come_up();
  EXPECT_EQ(link()["peer_node"], kVictim);
  EXPECT_EQ(victim_->peer_node(), kRogue);
  victim_->offer(2);
  ASSERT_TRUE(eventually([this] { return link()["functions"].size() == 2; }));
  const json borrowed = act("borrow");
  EXPECT_EQ(borrowed["numbers"]["id"], kFunction) << borrowed;
  EXPECT_NE(borrowed["numbers"]["lease"], 0) << borrowed;
  EXPECT_EQ(link()["malformed"], 0);

  // And the other way round.
  ASSERT_EQ(act("offer", 3)["ok"], true);
  ASSERT_TRUE(eventually([this] { return victim_->seen().size() == 3; }));
  EXPECT_NE(victim_->borrow(kRogue << 16 | 1), 0u);
  pcilend_msg_config config{kRogue << 16 | 1, 1, PCI_VENDOR_ID, 4, {}};
  const auto answer = victim_->ask(PCILEND_MSG_CONFIG_READ, &config);
  ASSERT_TRUE(answer);
  EXPECT_EQ(reinterpret_cast<const pcilend_msg_config*>(answer->payload.data())->data[0], 0x36);
  EXPECT_EQ(victim_->malformed(), 0u);
}

TEST_P(RogueTest, ComesBackAsAnotherLife) {
  come_up();
  const uint64_t before = victim_->peer_node();
  act("leave");
  EXPECT_EQ(link()["joined"], false);
  ASSERT_EQ(act("join", 12)["ok"], true);
  ASSERT_TRUE(eventually([this] { return victim_->up() && victim_->peer_node() == 12; }));
  EXPECT_NE(victim_->peer_node(), before);
}

// The victim of this test checks no lease: all it grants must be reported.
TEST_P(RogueTest, TellsWhatWasGrantedAndWhatWasNot) {
  come_up();
  victim_->offer(1);
  ASSERT_TRUE(eventually([this] { return link()["functions"].size() == 1; }));
  const json granted = act("stale-lease")["granted"];
  for (const char* what : {"map", "unmap", "bus-master", "reset", "return", "config-write"})
    EXPECT_THAT(granted, Contains(HasSubstr(what))) << granted;

  victim_->set_manner(Manner::Silent);
  const json silent = act("borrow");
  EXPECT_EQ(silent["numbers"]["lease"], 0) << silent;
  EXPECT_EQ(silent["unanswered"], 1) << silent;
}

TEST_P(RogueTest, MessagesThatTheProtocolForbidsArriveAsSuch) {
  come_up();
  for (const char* op : {"replay", "flood-garbage", "jump-head"}) {
    const uint64_t before = victim_->malformed();
    ASSERT_EQ(act(op)["ok"], true) << op;
    EXPECT_TRUE(eventually([&] { return victim_->malformed() > before; })) << op;
    ASSERT_EQ(act("join")["ok"], true);
    ASSERT_TRUE(eventually([this] { return victim_->up(); })) << op;
  }
}

TEST_P(RogueTest, FloodsEndInTimeAndLeaveAWorkingLink) {
  come_up();
  for (const char* op :
       {"flood-requests", "flood-deaf", "flood-notices", "flood-intx", "flip-connected", "storm",
        "jump-tail", "wild-heart", "scribble-scratchpads", "bounce", "reboots"}) {
    const auto start = std::chrono::steady_clock::now();
    const json report = act(op, 0, 100);
    ASSERT_EQ(report["ok"], true) << report;
    EXPECT_FALSE(report["numbers"].empty()) << op;
    EXPECT_LT(std::chrono::steady_clock::now() - start, 30s) << op;
    ASSERT_EQ(act("join")["ok"], true);
    ASSERT_TRUE(eventually([this] { return victim_->up() && link()["up"] == true; })) << op;
  }
}

TEST_P(RogueTest, AnswersLateTwiceAndWrong) {
  come_up();
  ASSERT_EQ(act("offer", 1)["ok"], true);
  constexpr uint32_t id = kRogue << 16 | 1;
  const pcilend_msg_borrow borrow{id, PCILEND_LEASE_MS_MIN, {}, 0};
  const auto ask = [&](const char* manner, Clock::duration within) {
    EXPECT_EQ(act(manner)["ok"], true);
    victim_->take_tally();
    return victim_->ask(PCILEND_MSG_BORROW, &borrow, within);
  };
  EXPECT_FALSE(ask("silent", 300ms));
  EXPECT_FALSE(ask("late", 300ms));
  EXPECT_TRUE(eventually([this] { return victim_->take_tally().answers["ok"] != 0; }));
  EXPECT_TRUE(ask("twice", 5s));
  EXPECT_TRUE(eventually([this] { return victim_->take_tally().answers["ok"] != 0; }));
  const auto other = ask("wrong-payload", 5s);
  ASSERT_TRUE(other);
  EXPECT_NE(reinterpret_cast<const pcilend_msg_borrowed*>(other->payload.data())->id, id);
  const auto honest = ask("honest", 5s);
  ASSERT_TRUE(honest);
  EXPECT_EQ(reinterpret_cast<const pcilend_msg_borrowed*>(honest->payload.data())->id, id);
}

TEST_P(RogueTest, HasSegmentsThatItDoesNotHearReleased) {
  come_up();
  const pcilend_msg_connection one{kRogue << 16 | 9, 1, 0};
  for (const char* manner : {"honest", "unreleasing"}) {
    EXPECT_EQ(act(manner)["ok"], true);
    const auto place = victim_->ask(PCILEND_MSG_SEGMENT_CONNECT, &one, 5s);
    ASSERT_TRUE(place) << manner;
    EXPECT_EQ(reinterpret_cast<const pcilend_msg_segment*>(place->payload.data())->id, one.id);
    const bool released = victim_->ask(PCILEND_MSG_SEGMENT_RELEASE, &one, 300ms).has_value();
    EXPECT_EQ(released, manner == std::string("honest"));
  }
  EXPECT_EQ(victim_->malformed(), 0U);
}

TEST_P(RogueTest, RefusesWhatMakesNoSense) {
  EXPECT_EQ(rogue_.carry_out("{")["ok"], false);
  EXPECT_THAT(act("dance")["error"].get<std::string>(), HasSubstr("unknown attack 'dance'"));
  const json nobody = rogue_.carry_out(R"({"op":"join","victim":"host7"})");
  EXPECT_THAT(nobody["error"].get<std::string>(), HasSubstr("host7"));
  const json long_one = rogue_.carry_out(R"({"op":"storm","victim":"host1","ms":3600000})");
  EXPECT_THAT(long_one["error"].get<std::string>(), HasSubstr("'ms'"));
  EXPECT_THAT(attacks(), Not(IsEmpty()));
}

TEST_P(RogueTest, ALeaseIsNeededForRanges) {
  come_up();
  EXPECT_THAT(act("bad-ranges")["error"].get<std::string>(), HasSubstr("'borrow' first"));
}

INSTANTIATE_TEST_SUITE_P(On, RogueTest, testing::Values(Product::Amd, Product::Switchtec),
                         [](const auto& one) { return std::string(to_string(one.param)); });

}  // namespace
}  // namespace pcilend::rogue
