// SPDX-License-Identifier: GPL-2.0-or-later
// QMP and the fabric's control socket, with the other side played by the test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "golden.h"
#include "lab/fabric_client.h"
#include "lab/print.h"
#include "lab/qmp.h"

namespace pcilend::lab {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using nlohmann::json;
using testing::HasSubstr;

// Listens at a path; for each connection writes `greeting`, then for each line it gets the next of
// `answers`, until those are used up.
class PlayedServer {
 public:
  PlayedServer(std::string greeting, std::vector<std::string> answers) {
    char name[] = "/tmp/pcilend-socket.XXXXXX";
    EXPECT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
    listener_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path().copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_.get(), 1), 0);
    thread_ = std::thread([this, greeting = std::move(greeting), answers = std::move(answers)] {
      const UniqueFd stream(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!stream) return;
      write(stream, greeting);
      for (const std::string& answer : answers) {
        char byte = 0;
        std::string line;
        while (::read(stream.get(), &byte, 1) == 1 && byte != '\n') line.push_back(byte);
        if (line.empty()) return;
        requests_.push_back(json::parse(line));
        write(stream, answer);
      }
    });
  }
  ~PlayedServer() {
    stop();
    fs::remove_all(dir_);
  }

  [[nodiscard]] std::string path() const { return dir_ / "socket"; }

  const std::vector<json>& requests() {
    stop();
    return requests_;
  }

 private:
  static void write(const UniqueFd& stream, const std::string& text) {
    (void)write_all(stream.get(), std::as_bytes(std::span(text)));
  }
  void stop() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
  }

  fs::path dir_;
  UniqueFd listener_;
  std::vector<json> requests_;
  std::thread thread_;
};

constexpr const char* kGreeting = "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\r\n";

TEST(QmpTest, CommandsAndEvents) {
  PlayedServer server(kGreeting,
                      {"{\"return\": {}}\r\n",
                       "{\"event\": \"STOP\"}\r\n{\"return\": {\"status\": \"running\"}}\r\n",
                       "{\"return\": {}}\r\n{\"event\": \"OTHER\"}\r\n{\"event\": \"RESET\"}\r\n"});
  {
    auto qmp = Qmp::connect(server.path(), Deadline(20s));
    ASSERT_TRUE(qmp) << qmp.error().message;
    const auto status = qmp->execute("query-status");
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_EQ(status->at("status"), "running");
    EXPECT_TRUE(qmp->execute("system_reset"));
    EXPECT_TRUE(qmp->wait_for_event("RESET", Deadline(20s)));
    const auto never = qmp->wait_for_event("STOP", Deadline(20s));
    EXPECT_FALSE(never);
  }
  EXPECT_EQ(server.requests().at(1), json({{"execute", "query-status"}}));
}

TEST(QmpTest, ARefusalHasQemusWords) {
  PlayedServer server(
      kGreeting,
      {"{\"return\": {}}\n",
       "{\"error\": {\"class\": \"GenericError\", \"desc\": \"it is not possible\"}}\n"});
  auto qmp = Qmp::connect(server.path(), Deadline(20s));
  ASSERT_TRUE(qmp);
  EXPECT_EQ(qmp->execute("device_add", {{"driver", "x"}}).error().message,
            "QMP device_add: it is not possible");
}

TEST(QmpTest, WhatIsNoQmpIsAnError) {
  PlayedServer garbage("hello\n", {});
  EXPECT_THAT(Qmp::connect(garbage.path(), Deadline(20s)).error().message,
              HasSubstr("not a JSON object"));
  PlayedServer closes("", {});
  EXPECT_EQ(Qmp::connect(closes.path(), Deadline(20s)).error().kind, ErrorClass::Unreachable);
}

TEST(QmpTest, OneProgramAtATime) {
  PlayedServer server(kGreeting, {"{\"return\": {}}\n", "{\"return\": {}}\n"});
  auto first = Qmp::connect(server.path(), Deadline(20s));
  ASSERT_TRUE(first);
  const auto second = Qmp::connect(server.path(), Deadline(100ms));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind, ErrorClass::State);
}

constexpr const char* kCounters = R"({"ok": true, "paths": [
  {"from": "host1", "to": "host2", "path": 1,
   "memory": {"reads": 8, "writes": 514, "read_bytes": 64, "write_bytes": 4112},
   "bar": {"reads": 0, "writes": 0, "read_bytes": 0, "write_bytes": 0},
   "interrupt": {"reads": 0, "writes": 3, "read_bytes": 0, "write_bytes": 12},
   "all_ones_reads": {"cycle": 0, "timeout": 0, "overflow": 0, "link_down": 2, "unmapped": 1},
   "dropped_writes": {"cycle": 0, "timeout": 0, "overflow": 0, "link_down": 0, "unmapped": 0}},
  {"from": "host2", "to": "host1", "path": 1,
   "memory": {"reads": 0, "writes": 0, "read_bytes": 0, "write_bytes": 0},
   "bar": {"reads": 24, "writes": 205, "read_bytes": 96, "write_bytes": 820},
   "interrupt": {"reads": 0, "writes": 0, "read_bytes": 0, "write_bytes": 0},
   "all_ones_reads": {"cycle": 0, "timeout": 0, "overflow": 0, "link_down": 0, "unmapped": 0},
   "dropped_writes": {"cycle": 0, "timeout": 0, "overflow": 0, "link_down": 0, "unmapped": 7}}],
 "adapters": [
  {"host": "host1", "peer": "host2", "path": 1, "registers": 400, "scratchpads": 12, "doorbells": 3,
   "interrupts_raised": 5, "dma_map_messages": 33, "dma_unmap_messages": 2, "posted_depth": 0,
   "posted_peak": 4},
  {"host": "host2", "peer": "host1", "path": 1, "registers": 401, "scratchpads": 11, "doorbells": 5,
   "interrupts_raised": 3, "dma_map_messages": 30, "dma_unmap_messages": 1, "posted_depth": 0,
   "posted_peak": 9}]})";

std::string one_line(const char* text) {
  std::string line = json::parse(text).dump();
  return line + "\n";
}

TEST(FabricTest, CountersAreReadAndPrinted) {
  PlayedServer server("", {one_line(kCounters)});
  const auto counters = Fabric(server.path()).counters(true);
  ASSERT_TRUE(counters) << counters.error().message;
  EXPECT_EQ(server.requests().at(0), json({{"op", "counters"}, {"reset", true}}));
  const PathCounters path = counters->path(1, 2);
  EXPECT_EQ(path.memory.writes, 514U);
  EXPECT_EQ(path.interrupt.write_bytes, 12U);
  EXPECT_EQ(path.all_ones_reads, 3U);
  EXPECT_EQ(counters->path(2, 1).dropped_writes, 7U);
  EXPECT_EQ(counters->path(1, 3).memory.reads, 0U);
  EXPECT_EQ(counters->path(1, 2, 2).memory.reads, 0U);
  EXPECT_FALSE(counters->json.contains("ok"));
  expect_golden("counters.txt", counters_text(*counters));
}

TEST(FabricTest, ASweepIsReadAndPrinted) {
  PlayedServer server("", {one_line(R"({"ok": true, "answered": [
      {"window": 0, "offset": 4096, "length": 8192, "address": 4096, "target": "memory", "stride": 4096},
      {"window": 0, "offset": 4276092928, "length": 1048576, "address": 4276092928,
       "target": "interrupt", "stride": 4096}], "probes": 40000, "seconds": 3.25})")});
  const auto report = Fabric(server.path()).sweep(1, 2);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(server.requests().at(0),
            json({{"op", "sweep"}, {"victim", "host1"}, {"from", "host2"}}));
  ASSERT_EQ(report->answered.size(), 2U);
  EXPECT_EQ(report->answered[1].target, "interrupt");
  expect_golden("sweep.txt", sweep_text(*report, "host1", "host2"));
  EXPECT_EQ(sweep_text({{}, {{"probes", 5}, {"seconds", 0.5}}}, "host1", "host2"),
            "nothing of host1 answers host2 (5 probes in 0.5 s)\n");
}

TEST(FabricTest, LinksAreSetInTheFabricsWords) {
  const std::string ok = "{\"ok\":true}\n";
  const auto sent = [&](auto change) {
    PlayedServer server("", {ok});
    EXPECT_TRUE(change(Fabric(server.path())));
    return server.requests().at(0);
  };
  EXPECT_EQ(sent([](const Fabric& f) { return f.link_down(1, 2); }),
            json({{"op", "link"}, {"a", "host1"}, {"b", "host2"}, {"state", "down"}}));
  EXPECT_EQ(sent([](const Fabric& f) { return f.link_up(1, 2); }),
            json({{"op", "link"}, {"a", "host1"}, {"b", "host2"}, {"state", "up"}}));
  EXPECT_EQ(sent([](const Fabric& f) { return f.set_delay(2, 3, 5ms); }),
            json({{"op", "link"}, {"a", "host2"}, {"b", "host3"}, {"delay_ms", 5}}));
}

TEST(FabricTest, RefusalsAndNonsenseAreErrors) {
  const auto error = [](const std::string& answer) {
    PlayedServer server("", {answer});
    const auto counters = Fabric(server.path()).counters();
    EXPECT_FALSE(counters);
    return counters ? std::string() : counters.error().message;
  };
  EXPECT_EQ(error("{\"ok\":false,\"error\":\"no such host\"}\n"), "fabric: no such host");
  EXPECT_THAT(error("{\"ok\":true}\n"), HasSubstr("is not understood"));
  EXPECT_THAT(error("{\"ok\":true,\"paths\":[{\"from\":1}]}\n"), HasSubstr("is not understood"));
  EXPECT_THAT(error("[]\n"), HasSubstr("not a JSON object"));
  EXPECT_THAT(error("{\n"), HasSubstr("not a JSON object"));
  EXPECT_THAT(Fabric("/no/socket").counters().error().message,
              HasSubstr("the fabric is not running"));
}

TEST(StatusText, OfTwoHosts) {
  expect_golden("status.txt", status_text(json::parse(R"({
    "lab": "default", "kernel": "6.12", "iommu": "intel", "dir": "/run/pcilend-lab/default",
    "fabric": "running",
    "hosts": [
      {"name": "host1", "node": 4, "state": "running", "pid": 4711, "memory_mib": 1536,
       "console": "/c", "adapters": [{"peer": "host2", "address": "0000:00:04.0"}],
       "devices": [{"id": "device0", "device": "nvme,serial=a", "address": "0000:00:10.0",
                    "drive": "/d"}]},
      {"name": "host2", "node": 8, "state": "off", "pid": null, "memory_mib": 2048,
       "console": "/c", "adapters": [{"peer": "host1", "address": "0000:00:04.0"}],
       "devices": [{"id": "x", "device": "e1000e,bus=rp", "address": null, "drive": null}]}],
    "links": [{"a": "host1", "b": "host2", "enabled": true, "up": false, "delay_ms": 0}]})")));
}

}  // namespace
}  // namespace pcilend::lab
