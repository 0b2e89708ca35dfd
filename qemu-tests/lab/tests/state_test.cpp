// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "lab/lab.h"
#include "lab/machine.h"

namespace pcilend::lab {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

State sample() {
  State state;
  state.name = "x";
  state.boot = "boot";
  state.owner = {{12, 4711}, "pcilend-demo"};
  state.kernel = "6.12";
  state.iommu = Iommu::Amd;
  state.paths = 2;
  state.bin = "/build/bin";
  state.hosts.push_back({1536,
                         {"qemu", "-m", "1536M"},
                         {{"device0", "nvme,serial=a", "0000:00:10.0", "/lab/drive"},
                          {"device1", "e1000e,bus=rp", std::nullopt, std::nullopt}}});
  state.hosts.push_back({2048, {"qemu"}, {}, Image::Installed});
  return state;
}

TEST(LabState, ComesBackFromJson) {
  EXPECT_EQ(state_from_json(to_json(sample())), sample());
  State unowned = sample();
  unowned.owner.reset();
  EXPECT_EQ(state_from_json(to_json(unowned)), unowned);
}

TEST(LabState, WhatItCannotBeIsRefused) {
  const nlohmann::json good = to_json(sample());
  for (const auto& [key, value] : good.items()) {
    nlohmann::json bad = good;
    bad.erase(key);
    EXPECT_FALSE(state_from_json(bad)) << key;
    bad[key] = nlohmann::json::array({nullptr});
    EXPECT_FALSE(state_from_json(bad)) << key;
  }
  nlohmann::json bad = good;
  bad["hosts"][0]["devices"][0]["address"] = 5;
  EXPECT_FALSE(state_from_json(bad));
  EXPECT_FALSE(state_from_json(nlohmann::json::array()));
  EXPECT_FALSE(state_from_json(nlohmann::json::parse("{", nullptr, false)));
}

class LabDirectory : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/pcilend-state.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    base_ = name;
    ::setenv("PCILEND_LAB_DIR", base_.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("PCILEND_LAB_DIR");
    fs::remove_all(base_);
  }

  fs::path base_;
};

TEST_F(LabDirectory, KeepsTheState) {
  const Layout layout = Layout::of("x");
  EXPECT_EQ(layout.dir(), base_ / "x");
  ASSERT_TRUE(save(sample(), layout));
  EXPECT_EQ(load_state("x", layout), sample());
}

TEST_F(LabDirectory, ALabThatIsNotUpIsNotFound) {
  const auto lab = Lab::attach("x");
  ASSERT_FALSE(lab);
  EXPECT_EQ(lab.error().kind, ErrorClass::NotFound);
  EXPECT_EQ(lab.error().message, "lab 'x' is not up: 'pcilend-lab up' starts it");
}

TEST_F(LabDirectory, AStateOfAnotherVersionIsSaid) {
  const Layout layout = Layout::of("x");
  fs::create_directories(layout.dir());
  std::ofstream(layout.state()) << "{}";
  EXPECT_THAT(Lab::attach("x").error().message, HasSubstr("'pcilend-lab down' clears it away"));
}

TEST_F(LabDirectory, AttachedLabsStay) {
  const Layout layout = Layout::of("x");
  ASSERT_TRUE(save(sample(), layout));
  {
    auto lab = Lab::attach("x");
    ASSERT_TRUE(lab);
    EXPECT_EQ(lab->hosts(), 2);
    EXPECT_EQ(lab->host(2).name(), "host2");
    EXPECT_EQ(lab->host(2).node(), 8);
    EXPECT_EQ(lab->host("host3").error().message, "no host 'host3': this lab has host1 to host2");
    EXPECT_EQ(lab->host(1).address(0), "0000:00:10.0");
    EXPECT_THAT(lab->host(2).address(0).error().message, HasSubstr("host2 has 0 devices"));
  }
  EXPECT_TRUE(fs::exists(layout.state()));
}

TEST_F(LabDirectory, AHostThatIsOffSaysSo) {
  ASSERT_TRUE(save(sample(), Layout::of("x")));
  auto lab = Lab::attach("x", [](std::string_view) {});
  ASSERT_TRUE(lab);
  Host& host = lab->host(1);
  EXPECT_EQ(host.machine().condition(), Condition::Off);
  const std::string off = "host1 is off: 'pcilend-lab power host1 on' starts it";
  EXPECT_EQ(host.exec("true").error().message, off);
  EXPECT_EQ(host.reset().error().message, off);
  EXPECT_EQ(host.panic().error().message, off);
  EXPECT_TRUE(host.power_off());
}

TEST_F(LabDirectory, DownRemovesARemnantAndItsProcesses) {
  const Layout layout = Layout::of("x");
  ASSERT_TRUE(save(sample(), layout));
  const Processes processes;
  const auto id = processes.spawn({{"sleep", "100"}, layout.qemu_log(1), layout.qemu_pid(1), -1});
  ASSERT_TRUE(id);
  // Even if the file that named it is lost.
  fs::remove(layout.qemu_pid(1));
  EXPECT_EQ(Lab::down("x"), true);
  EXPECT_FALSE(processes.alive(*id));
  EXPECT_FALSE(fs::exists(base_));
  EXPECT_EQ(Lab::down("x"), false);
  EXPECT_FALSE(fs::exists(base_));
}

TEST_F(LabDirectory, DownLeavesOtherLabsAlone) {
  ASSERT_TRUE(save(sample(), Layout::of("x")));
  ASSERT_TRUE(save(sample(), Layout::of("x.1")));
  const Processes processes;
  const Layout other = Layout::of("x.1");
  const auto id = processes.spawn({{"sleep", "100"}, other.qemu_log(1), other.qemu_pid(1), -1});
  ASSERT_TRUE(id);
  EXPECT_EQ(Lab::down("x"), true);
  EXPECT_TRUE(processes.alive(*id));
  EXPECT_TRUE(fs::exists(other.state()));
  EXPECT_EQ(Lab::down("x.1"), true);
}

TEST(PciAddresses, AreThoseOfDevicesWithIds) {
  const auto answer = nlohmann::json::parse(R"([{"bus": 0, "devices": [
      {"bus": 0, "slot": 16, "function": 0, "qdev_id": "device0"},
      {"bus": 0, "slot": 31, "function": 2, "qdev_id": ""},
      {"bus": 0, "slot": 17, "function": 0, "qdev_id": "rp", "pci_bridge": {"bus": {}, "devices": [
          {"bus": 1, "slot": 0, "function": 1, "qdev_id": "behind"}]}}]}])");
  EXPECT_THAT(parse_pci_addresses(answer),
              UnorderedElementsAre(Pair("device0", "0000:00:10.0"), Pair("rp", "0000:00:11.0"),
                                   Pair("behind", "0000:01:00.1")));
}

TEST(LastLines, SkipEmptyOnes) {
  EXPECT_EQ(last_lines("a\r\n\nb\nc\n\n", 2), "\n  | b\n  | c");
  EXPECT_EQ(last_lines("a", 2), "\n  | a");
  EXPECT_EQ(last_lines("", 2), "");
}

}  // namespace
}  // namespace pcilend::lab
