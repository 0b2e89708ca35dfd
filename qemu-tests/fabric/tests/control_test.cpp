// SPDX-License-Identifier: GPL-2.0-or-later
// The control commands, and the sweep.
#include "control.h"

#include <gmock/gmock.h>
#include <sys/eventfd.h>

#include "tests/fabric_lab.h"

namespace pcilend::fabric {
namespace {

using nlohmann::json;
using test::bytes_from;
using test::Host;
using test::milliseconds;
using test::Received;
using test::value_bytes;
using testing::HasSubstr;

class ControlTest : public test::FabricLab {
 protected:
  json ask(const json& request) { return ask_line(request.dump()); }
  json ask_line(std::string_view line) {
    json answer;
    int answers = 0;
    const auto work = carry_out(*fabric, line, [&](const json& given) {
      answer = given;
      answers++;
    });
    EXPECT_EQ(work, nullptr) << "answered at once";
    EXPECT_EQ(answers, 1);
    return answer;
  }
  std::string error_of(const json& request) {
    const json answer = ask(request);
    EXPECT_EQ(answer["ok"], false) << request;
    const auto text = answer.value("error", "");
    EXPECT_EQ(text.find('\n'), std::string::npos);
    return text;
  }
};

// Behind the place where the link is cut.
TEST_F(ControlTest, WritesThatAreHeldArriveWhenTheyAreLetGo) {
  make(2);
  Host& a = boot(1, 2);
  Host& b = boot(2, 1);
  json hold = {{"op", "hold"}, {"from", "host1"}, {"to", "host2"}, {"held", true}};
  EXPECT_EQ(ask(hold)["ok"], true);
  put<uint32_t>(a, kRegionBar2, 0x10, 1);
  put<uint32_t>(a, kRegionBar4, 0x20, 2);
  put<uint32_t>(a, kRegionBar2, 0x10, 3);
  put<uint32_t>(b, kRegionBar2, 0x10, 9);
  EXPECT_EQ(a.ram.get<uint32_t>(0x10), 9u) << "the other direction is as before";
  EXPECT_EQ(b.ram.get<uint32_t>(0x10), 0u);
  EXPECT_EQ(ask({{"op", "status"}})["adapters"][0]["held"], 3);
  fabric->set_link(0, 1, false);
  put<uint32_t>(a, kRegionBar2, 0x10, 4);
  EXPECT_EQ(b.ram.get<uint32_t>(0x10), 0u);
  hold["held"] = false;
  EXPECT_EQ(ask(hold)["released"], 3);
  run();
  b.drain();
  EXPECT_EQ(b.ram.get<uint32_t>(0x10), 3u) << "in order, without what the link has lost";
  EXPECT_EQ(b.count(Command::DmaWrite), 1u);
  EXPECT_EQ(lost_writes(1, 2, Loss::LinkDown), 1u);
  EXPECT_EQ(ask(hold)["released"], 0);
  EXPECT_EQ(error_of({{"op", "hold"}, {"from", "host1"}, {"to", "host2"}, {"held", 1}}),
            "'held' is not true or false");
}

TEST_F(ControlTest, ALinkIsCutInTheMiddleOfATransfer) {
  make(2);
  Host& a = boot(1, 2);
  Host& b = boot(2, 1);
  // Where functions have memory, and where only processors do.
  constexpr uint64_t kHigh = 8ull << 30;
  const uint16_t id = b.client.send_map(kHigh, Host::kRamSize, b.ram.fd());
  run();
  ASSERT_FALSE(b.take_reply(Command::DmaMap, id)->failed());
  const json trip = {{"op", "trip"}, {"from", "host1"}, {"to", "host2"}, {"reads", 2}};
  EXPECT_EQ(ask(trip)["ok"], true);
  b.ram.put<uint32_t>(0x10, 5);
  for (int i = 0; i < 5; i++) EXPECT_EQ(get(a, kRegionBar2, 0x10, 4), 5u);
  set_translation(b, 0, kHigh, Host::kRamSize);
  for (int i = 0; i < 2; i++) EXPECT_EQ(get(a, kRegionBar2, 0x10, 4), 5u);
  EXPECT_TRUE(fabric->link(0, 1).up);
  EXPECT_EQ(ask({{"op", "status"}})["adapters"][0]["trips"], true);
  EXPECT_EQ(get(a, kRegionBar2, 0x10, 4), 0xffffffffu);
  EXPECT_FALSE(fabric->link(0, 1).up);
  EXPECT_EQ(ask({{"op", "status"}})["adapters"][0]["trips"], false);

  fabric->set_link(0, 1, true);
  json flap = {{"op", "trip"}, {"from", "host1"}, {"to", "host2"}, {"writes", 1}, {"flap_ms", 50}};
  EXPECT_EQ(ask(flap)["ok"], true);
  put<uint32_t>(a, kRegionBar2, 0x10, 6);
  put<uint32_t>(a, kRegionBar2, 0x14, 7);
  EXPECT_EQ(b.ram.get<uint32_t>(0x10), 6u);
  EXPECT_EQ(b.ram.get<uint32_t>(0x14), 0u);
  EXPECT_FALSE(fabric->link(0, 1).enabled);
  advance(milliseconds(60));
  EXPECT_TRUE(fabric->link(0, 1).enabled);
  flap.erase("writes");
  EXPECT_EQ(error_of(flap), "after what? Give 'reads' or 'writes'");
}

TEST_F(ControlTest, APathIsChangedAloneOrWithTheOthers) {
  make(2, {.paths = 2});
  const auto enabled = [&] {
    return std::vector{fabric->link(0, 1, 0).enabled, fabric->link(0, 1, 1).enabled};
  };
  json request = {{"op", "link"}, {"a", "host2"}, {"b", "host1"}, {"path", 2}, {"state", "down"}};
  EXPECT_EQ(ask(request)["ok"], true);
  EXPECT_THAT(enabled(), testing::ElementsAre(true, false));
  request.erase("path");
  EXPECT_EQ(ask(request)["ok"], true);
  EXPECT_THAT(enabled(), testing::ElementsAre(false, false));
  request["path"] = 3;
  EXPECT_EQ(error_of(request), "no path 3: each pair of hosts has 2");
  const json status = ask({{"op", "status"}});
  EXPECT_EQ(status["links"][1]["path"], 2);
  EXPECT_EQ(status["adapters"].size(), 4u);
}

TEST_F(ControlTest, AHostIsToldOfEventsOrNot) {
  boot(1, 2);
  boot(2, 1);
  json request = {{"op", "events"}, {"host", "host1"}, {"peer", "host2"}, {"told", false}};
  EXPECT_EQ(ask(request)["ok"], true);
  request["told"] = "no";
  EXPECT_EQ(error_of(request), "'told' is not true or false");
  request.erase("host");
  EXPECT_THAT(error_of(request), HasSubstr("'host' is missing"));
  EXPECT_EQ(ask({{"op", "link"}, {"a", "host1"}, {"b", "host2"}, {"flap_ms", 5}})["ok"], true);
  EXPECT_FALSE(fabric->link(0, 1).up);
  EXPECT_THAT(error_of({{"op", "link"}, {"a", "host1"}, {"b", "host2"}, {"flap_ms", 60001}}),
              HasSubstr("at most 60000"));
}

TEST_F(ControlTest, WhatIsNoRequestIsRefused) {
  for (const char* line : {"", "{", "[]", "null", "1", "\"status\"", "\xff\xfe", "{\"op\":}"})
    EXPECT_EQ(ask_line(line)["ok"], false) << line;
  EXPECT_THAT(error_of({{"op", "dance"}}), HasSubstr("unknown op 'dance'"));
  EXPECT_THAT(error_of({{"op", 1}}), HasSubstr("'op'"));
  EXPECT_THAT(error_of(json::object()), HasSubstr("'op'"));
}

TEST_F(ControlTest, StatusTellsHostsLinksAndAdapters) {
  make(3);
  boot(1, 2);
  boot(2, 1);
  set_ready(host(1, 2));
  fabric->set_delay(0, 1, milliseconds(5));
  const json status = ask({{"op", "status"}});
  EXPECT_EQ(status["ok"], true);
  EXPECT_EQ(status["hosts"], json({"host1", "host2", "host3"}));
  EXPECT_EQ(status["links"].size(), 3u);
  EXPECT_EQ(status["links"][0], json({{"a", "host1"},
                                      {"b", "host2"},
                                      {"path", 1},
                                      {"enabled", true},
                                      {"up", true},
                                      {"delay_ms", 5},
                                      {"in_flight", 0}}));
  EXPECT_EQ(status["links"][2]["a"], "host2");
  EXPECT_EQ(status["links"][2]["b"], "host3");
  EXPECT_EQ(status["links"][2]["up"], false);
  EXPECT_EQ(status["adapters"].size(), 6u);
  const json& adapter = status["adapters"][0];
  EXPECT_EQ(adapter["host"], "host1");
  EXPECT_EQ(adapter["peer"], "host2");
  EXPECT_EQ(adapter["side"], "primary");
  EXPECT_EQ(adapter["connected"], true);
  EXPECT_EQ(adapter["driver_ready"], true);
  EXPECT_EQ(adapter["bus_master"], true);
  EXPECT_EQ(adapter["dma_maps"], 1);
  EXPECT_EQ(adapter["inbound_windows"][0], json({{"size", 64ull << 30},
                                                 {"openings",
                                                  {{{"offset", 0},
                                                    {"length", uint64_t{Host::kRamSize}},
                                                    {"address", uint64_t{Host::kRamBus}}}}}}));
}

TEST_F(ControlTest, LinksAreSetAndSlowed) {
  boot(1, 2);
  boot(2, 1);
  EXPECT_EQ(ask({{"op", "link"}, {"a", "host2"}, {"b", "host1"}, {"state", "down"}}),
            json({{"ok", true}}));
  EXPECT_FALSE(fabric->link(0, 1).up);
  ask({{"op", "link"}, {"a", "host1"}, {"b", "host2"}, {"state", "up"}, {"delay_ms", 7}});
  EXPECT_TRUE(fabric->link(0, 1).up);
  EXPECT_EQ(fabric->link(0, 1).delay, milliseconds(7));
  ask({{"op", "link"}, {"a", "host1"}, {"b", "host2"}, {"delay_ms", 0}});
  EXPECT_EQ(fabric->link(0, 1).delay, milliseconds(0));
}

TEST_F(ControlTest, ABadLinkRequestChangesNothing) {
  const json good = {{"op", "link"}, {"a", "host1"}, {"b", "host2"}, {"state", "down"}};
  const auto with = [&](const char* key, const json& value) {
    json request = good;
    request[key] = value;
    return error_of(request);
  };
  EXPECT_THAT(with("a", "host3"), HasSubstr("no host 'host3'"));
  EXPECT_THAT(with("a", "host2"), HasSubstr("the same host"));
  EXPECT_THAT(with("b", 2), HasSubstr("'b'"));
  EXPECT_THAT(with("state", "sideways"), HasSubstr("'up' or 'down'"));
  EXPECT_THAT(with("delay_ms", -1), HasSubstr("'delay_ms'"));
  EXPECT_THAT(with("delay_ms", 0.5), HasSubstr("'delay_ms'"));
  EXPECT_THAT(with("delay_ms", 401), HasSubstr("at most 400"));
  EXPECT_THAT(error_of({{"op", "link"}, {"a", "host1"}, {"b", "host2"}}),
              HasSubstr("nothing to change"));
  EXPECT_TRUE(fabric->link(0, 1).enabled);
}

TEST_F(ControlTest, CountersAreReadAndReset) {
  boot(1, 2);
  boot(2, 1);
  ask({{"op", "counters"}, {"reset", true}});
  put<uint32_t>(host(1, 2), kRegionBar2, 0, 1);
  put<uint32_t>(host(1, 2), kRegionBar4, 0, 1);
  put<uint16_t>(host(1, 2), kRegionBar0, reg::kDoorbellRequest, 0x3);
  get(host(2, 1), kRegionBar0, reg::kScratchpad, 4);
  const json counters = ask({{"op", "counters"}, {"reset", true}});
  EXPECT_EQ(counters["paths"].size(), 2u);
  const json& path = counters["paths"][0];
  EXPECT_EQ(path["from"], "host1");
  EXPECT_EQ(path["to"], "host2");
  EXPECT_EQ(path["memory"],
            json({{"reads", 0}, {"writes", 1}, {"read_bytes", 0}, {"write_bytes", 4}}));
  EXPECT_EQ(path["bar"]["writes"], 1);
  EXPECT_EQ(path["interrupt"]["writes"], 0);
  for (const char* kind : {"all_ones_reads", "dropped_writes"})
    for (const char* why : {"cycle", "timeout", "overflow", "link_down", "unmapped"})
      EXPECT_EQ(path[kind][why], 0) << kind << ' ' << why;
  EXPECT_EQ(counters["adapters"][0]["doorbells"], 2);
  EXPECT_EQ(counters["adapters"][1]["scratchpads"], 1);
  EXPECT_EQ(counters["adapters"][1]["registers"], 1);
  EXPECT_EQ(ask({{"op", "counters"}})["paths"][0]["memory"]["writes"], 0);
  EXPECT_THAT(error_of({{"op", "counters"}, {"reset", "yes"}}), HasSubstr("'reset'"));
}

TEST_F(ControlTest, AResetForgetsEveryCountOfAnAdapter) {
  boot(1, 2);
  Host& peer = boot(2, 1);
  const UniqueFd vector(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  peer.client.send_set_irqs(IrqSet::kDataEventfd | IrqSet::kActionTrigger, 0, 1, {vector.get()});
  put<uint16_t>(peer, kRegionBar0, reg::kDoorbellMask, 0);
  put<uint16_t>(host(1, 2), kRegionBar0, reg::kDoorbellRequest, 0x1);
  const json before = ask({{"op", "counters"}, {"reset", true}})["adapters"];
  EXPECT_EQ(before[1]["interrupts_raised"], 1);
  const json after = ask({{"op", "counters"}})["adapters"];
  for (const json& adapter : after) {
    for (const auto& [name, count] : adapter.items()) {
      if (count.is_number() && name != "path") {
        EXPECT_EQ(count, 0) << name;
      }
    }
  }
}

class SweepTest : public ControlTest {
 protected:
  void SetUp() override {
    make(2);
    a = &boot(1, 2);
    b = &boot(2, 1);
  }

  void begin(const json& more = json::object()) {
    json request = {{"op", "sweep"}, {"victim", "host2"}, {"from", "host1"}};
    request.update(more);
    answer = nullptr;
    work = carry_out(*fabric, request.dump(), [this](const json& given) { answer = given; });
  }
  // The victim's QEMU answers what `registers` holds (page numbers of its bus) and refuses the
  // rest.
  void serve(const std::set<uint64_t>& registers) {
    for (int round = 0; round < 100'000 && answer.is_null(); round++) {
      run();
      while (const auto request = b->take_request(Command::DmaRead)) {
        const auto access = request->head<DmaAccess>();
        if (registers.contains(access.address >> 12))
          b->client.answer(*request, Bytes(access.count));
        else
          b->client.answer_error(*request, EFAULT);
      }
    }
    ASSERT_EQ(answer["ok"], true) << answer;
  }
  static json hit(unsigned window, uint64_t offset, uint64_t length, uint64_t address,
                  const char* target, uint64_t stride = 4096) {
    return {{"window", window},   {"offset", offset}, {"length", length},
            {"address", address}, {"target", target}, {"stride", stride}};
  }

  Host* a = nullptr;
  Host* b = nullptr;
  json answer;
  std::unique_ptr<Work> work;
};

TEST_F(SweepTest, FindsMemoryWithoutAMessage) {
  begin({{"ranges", {{{"window", 0}, {"offset", 0}, {"length", 64ull << 30}}}}});
  EXPECT_EQ(answer["answered"], json::array({hit(0, 0, Host::kRamSize, Host::kRamBus, "memory")}));
  EXPECT_EQ(answer["probes"], 0);
}

TEST_F(SweepTest, FindsEveryPageOfARange) {
  begin({{"ranges", {{{"window", 1}, {"offset", 0}, {"length", 0x100000}}}}});
  serve({0xfe000, 0xfe001, 0xfe010, 0xfe0ff});
  EXPECT_EQ(answer["answered"], json::array({hit(1, 0, 0x2000, 0xfe000000, "bar"),
                                             hit(1, 0x10000, 0x1000, 0xfe010000, "bar"),
                                             hit(1, 0xff000, 0x1000, 0xfe0ff000, "bar")}));
  EXPECT_EQ(answer["probes"], 256);
  EXPECT_EQ(traffic(1, 2, Target::Bar).reads, 0u) << "not traffic of the hosts";
}

TEST_F(SweepTest, ACoarseHitIsFollowedToItsEdges) {
  begin({{"ranges", {{{"window", 1}, {"offset", 0}, {"length", 0x800000}, {"stride", 0x100000}}}}});
  std::set<uint64_t> registers;
  for (uint64_t page = 0xfe1f0; page < 0xfe410; page++) registers.insert(page);
  serve(registers);
  EXPECT_EQ(answer["answered"],
            json::array({hit(1, 0x1f0000, 0x220000, 0xfe1f0000, "bar", 0x100000)}));
}

TEST_F(SweepTest, WhatAFinerRangeHasSeenClosedIsNotJoined) {
  begin({{"ranges",
          {{{"window", 1}, {"offset", 0}, {"length", 0x400000}, {"stride", 0x100000}},
           {{"window", 1}, {"offset", 0}, {"length", 0x140000}}}}});
  serve({0xfe000, 0xfe100, 0xfe140, 0xfe240});
  EXPECT_EQ(answer["answered"],
            json::array({hit(1, 0, 0x1000, 0xfe000000, "bar"),
                         hit(1, 0x100000, 0x1000, 0xfe100000, "bar"),
                         hit(1, 0x140000, 0x101000, 0xfe140000, "bar", 0x100000)}));
}

TEST_F(SweepTest, TheDefaultFindsWhatIsUsedAndWhatLiesAtTheEnds) {
  set_translation(*b, 1, 1ull << 40, 16ull << 30);
  // A function that traffic has been seen to, in the middle of nowhere.
  const uint16_t id = begin_read(*a, kRegionBar4, 0x134567000 + 0x10);
  const auto request = b->take_request(Command::DmaRead);
  b->client.answer(*request, value_bytes<uint32_t>(0));
  run();
  EXPECT_TRUE(answer_of(*a, id));

  begin();
  const uint64_t used = ((1ull << 40) + 0x134567000) >> 12;
  serve({1ull << 28, used, used + 2, ((1ull << 40) + (16ull << 30) - 1) >> 12});
  std::vector<std::pair<unsigned, uint64_t>> found;
  for (const json& one : answer["answered"]) found.emplace_back(one["window"], one["offset"]);
  using Found = std::pair<unsigned, uint64_t>;
  EXPECT_THAT(found, testing::ElementsAre(Found{0, 0}, Found{1, 0}, Found{1, 0x134567000},
                                          Found{1, 0x134569000}, Found{1, (16ull << 30) - 0x1000}));
}

TEST_F(SweepTest, InterruptAddressesAreReportedUnread) {
  set_translation(*b, 0, 0, 64ull << 30);
  begin({{"ranges", {{{"window", 0}, {"offset", 0xfee00000 - 0x2000}, {"length", 0x110000}}}}});
  serve({});
  EXPECT_EQ(answer["answered"],
            json::array({hit(0, 0xfee00000, 1 << 20, 0xfee00000, "interrupt")}));
}

TEST_F(SweepTest, AClosedApertureOrALostLinkShowsNothing) {
  set_translation(*b, 0, 0, 0);
  set_translation(*b, 1, 0, 0);
  begin();
  EXPECT_EQ(answer["answered"], json::array());
  set_translation(*b, 0, Host::kRamBus, Host::kRamSize);
  fabric->set_link(0, 1, false);
  begin();
  EXPECT_EQ(answer["answered"], json::array());
  EXPECT_EQ(answer["probes"], 0);
}

TEST_F(SweepTest, AVictimThatDiesMidwayEndsTheSweep) {
  begin({{"ranges", {{{"window", 1}}}}});
  run();
  EXPECT_TRUE(answer.is_null());
  power_off(2, 1);
  EXPECT_EQ(answer["ok"], true);
  EXPECT_EQ(answer["answered"], json::array());
}

TEST_F(SweepTest, AVictimThatStopsAnsweringIsAnError) {
  begin({{"ranges", {{{"window", 1}}}}});
  advance(milliseconds(30'000));
  EXPECT_EQ(answer["ok"], false);
  EXPECT_THAT(answer["error"], HasSubstr("stopped answering"));
}

TEST_F(SweepTest, AnAskerWhoLeavesCancelsIt) {
  begin({{"ranges", {{{"window", 1}}}}});
  run();
  work.reset();
  while (const auto request = b->take_request(Command::DmaRead))
    b->client.answer(*request, value_bytes<uint32_t>(0));
  run();
  EXPECT_TRUE(answer.is_null());
  b->drain();
  EXPECT_EQ(b->count(Command::DmaRead), 0u);
}

TEST_F(SweepTest, HostsGoOnMeanwhile) {
  begin({{"ranges", {{{"window", 1}}}}});
  run();
  put<uint32_t>(*a, kRegionBar2, 0, 7);
  EXPECT_EQ(get(*a, kRegionBar2, 0, 4), 7u);
  const uint16_t id = begin_read(*a, kRegionBar4, 0x8);
  for (int round = 0; round < 100; round++) {
    while (const auto request = b->take_request(Command::DmaRead)) {
      if (request->head<DmaAccess>().address == 0xfe000008)
        b->client.answer(*request, value_bytes<uint32_t>(9));
      else
        b->client.answer_error(*request, EFAULT);
    }
    run();
  }
  EXPECT_EQ(answer_of(*a, id), 9u);
}

TEST_F(SweepTest, BadRangesAreRefused) {
  const auto with = [&](const json& range) {
    return error_of({{"op", "sweep"},
                     {"victim", "host2"},
                     {"from", "host1"},
                     {"ranges", json::array({range})}});
  };
  EXPECT_THAT(with(1), HasSubstr("not an object"));
  EXPECT_THAT(with({{"window", 2}}), HasSubstr("no window 2"));
  EXPECT_THAT(with({{"offset", 5}}), HasSubstr("multiple of 4096"));
  EXPECT_THAT(with({{"offset", (64ull << 30) + 4096}}), HasSubstr("offset"));
  EXPECT_THAT(with({{"stride", 0}}), HasSubstr("stride"));
  EXPECT_THAT(with({{"stride", 4097}}), HasSubstr("stride"));
  EXPECT_THAT(with({{"length", -1}}), HasSubstr("'length'"));
  EXPECT_THAT(error_of({{"op", "sweep"}, {"victim", "host2"}, {"from", "host2"}}),
              HasSubstr("same host"));
  EXPECT_THAT(error_of({{"op", "sweep"}, {"victim", "host2"}}), HasSubstr("'from'"));
  EXPECT_THAT(
      error_of({{"op", "sweep"}, {"victim", "host2"}, {"from", "host1"}, {"ranges", "everywhere"}}),
      HasSubstr("not a list"));
}

}  // namespace
}  // namespace pcilend::fabric
