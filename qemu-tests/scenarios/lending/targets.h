// SPDX-License-Identifier: GPL-2.0-or-later
// Fixture: memory that is elsewhere, mapped for a function that a process has leased
// (docs/device-api.md).
#pragma once

#include <gmock/gmock.h>

#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "main_job/admin_steps.h"
#include "testing/asserts.h"
#include "testing/suite_lab.h"
#include "testing/two_hosts.h"

namespace pcilend::scenarios {

/*
 *   host1 (lender, node 4)                                  host2 (node 8)
 *   process ── lease fd ── edu ── IOMMU ── NTB ════════ NTB ── lease fd ── process
 *   memory: pci-testdev             │                    memory: pci-testdev
 *                                  NTB ════════ NTB ── segment of a process
 *                                               host3 (node 12)
 */
class Targets : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "targets";
    options.hosts = 3;
    ASSERT_OK(options.add_device("host1:edu,id=edu,dma_mask=0xffffffffffffffff,root-port=on"));
    // Behind a port it can be reset, and so leased.
    for (int host : {1, 2})
      ASSERT_OK(options.add_device(fmt::format(
          "host{}:pci-testdev,id=memory,membar=1M,membar-backed=on,root-port=on", host)));
    ASSERT_OK(start_lab(options, lab_));
    for (int number : {2, 3})
      ASSERT_OK(host(1).run(fmt::format("pcilend connect {}", host(number).node())));
    const auto address = host(1).address("edu");
    ASSERT_OK(address);
    address_ = *address;
  }
  static void TearDownTestSuite() { EXPECT_OK(end_lab(lab_)); }

  void SetUp() override {
    ASSERT_TRUE(lab_) << "the lab did not start";
    for (int number : {1, 2, 3}) {
      ASSERT_OK(host(number).mark_log());
      ASSERT_OK(host(number).run("rm -f /run/go"));
    }
    const auto offered = offer(host(1), address_);
    ASSERT_OK(offered);
    id_ = offered->at("id");
    ASSERT_OK(await_state(host(2), id_, "available"));
    before_ = left();
  }

  void TearDown() override {
    if (!lab_) return;
    user_.reset();
    EXPECT_OK(await_state(host(1), id_, "available"));
    if (owner_) end_owner();
    EXPECT_OK(
        lab::eventually("nothing is left", lab::kPatience, [&] { return left() == before_; }));
    EXPECT_EQ(left(), before_);
    EXPECT_OK(host(1).run("pcilend unavailable " + id_));
    EXPECT_OK(host(1).run("pcilend remove " + id_));
    for (int number : {1, 2, 3}) {
      expect_nothing_mapped(host(number));
      EXPECT_OK(host(number).check_log(expected_));
    }
  }

  static lab::Host& host(int number) { return lab_->host(number); }

  // What could be left behind: references on the module, interrupts, segments, what is pinned,
  // offered and connected.
  static std::string left() {
    std::string all;
    for (int number : {1, 2, 3}) {
      const auto said = host(number).run(
          "awk '$1 == \"pcilend\" { print $3 }' /proc/modules; "
          "grep -c pcilend-lease /proc/interrupts; pcilend segment list --json; "
          "pcilend metrics | grep '^pcilend_segment'");
      EXPECT_OK(said);
      all += said.value_or("");
    }
    return all;
  }

  // A segment of four pages of that host, offered so, which goes on.
  void create(const lab::Host& owner, const std::string& nodes) {
    auto started = owner.start("exec pcilend segment create --json --size 16K " + nodes,
                               {{}, std::chrono::minutes(20)});
    ASSERT_OK(started);
    owner_.emplace(std::move(*started));
    owner_host_ = &owner;
    ASSERT_OK(owner.until("true", [&](const lab::Output&) {
      return owner_->ended() || !lines(owner_->output_so_far()).empty();
    }));
    ASSERT_FALSE(owner_->ended()) << owner_->output_so_far();
    segment_ = lines(owner_->output_so_far()).front().at("segments").at(0).at("id");
  }
  // In order.
  void end_owner() {
    owner_->interrupt();
    EXPECT_OK(owner_->wait());
    owner_.reset();
  }
  void kill_owner() {
    ASSERT_OK(owner_host_->run("kill -9 $(pidof -s pcilend)"));
    ASSERT_OK(owner_->wait());
    owner_.reset();
  }

  // What is written on a line each.
  static std::vector<nlohmann::json> lines(const std::string& text) {
    std::vector<nlohmann::json> found;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);)
      if (auto said = nlohmann::json::parse(line, nullptr, false); said.is_object())
        found.push_back(std::move(said));
    return found;
  }

  // Steps of a program of that host, to their end: what each has said.
  [[nodiscard]] std::vector<nlohmann::json> use(const lab::Host& where,
                                                const std::string& steps) const {
    const auto said = where.run(fmt::format("{} {} {}", kUser, id_, steps));
    EXPECT_OK(said);
    return lines(said.value_or(""));
  }
  // One that goes on; until it waits for something, for the so many-th time.
  void start_user(const lab::Host& where, const std::string& steps) {
    auto started = where.start(fmt::format("exec {} {} {}", kUser, id_, steps));
    ASSERT_OK(started);
    user_.emplace(std::move(*started));
    ASSERT_NO_FATAL_FAILURE(await_waiting(where, 1));
  }
  void await_waiting(const lab::Host& where, int times) {
    ASSERT_OK(where.until("true", [&](const lab::Output&) {
      int waits = 0;
      for (const auto& line : lines(user_->output_so_far())) waits += line.at("step") == "waiting";
      return user_->ended() || waits >= times;
    }));
    ASSERT_FALSE(user_->ended()) << user_->output_so_far();
  }
  // It has come to its end: what its steps have said, but for that they wait.
  std::vector<nlohmann::json> end_of_user() {
    const auto ended = user_->wait();
    user_.reset();
    EXPECT_OK(ended);
    if (!ended) return {};
    EXPECT_EQ(ended->code, 0) << ended->err << ended->out;
    std::vector<nlohmann::json> steps;
    for (auto& line : lines(ended->out))
      if (line.at("step") != "waiting") steps.push_back(std::move(line));
    return steps;
  }

  // What edu does where nothing is mapped for it any more.
  void expect_stopped_dma() {
    expected_.emplace_back("DMAR: DRHD: handling fault status reg");
    expected_.emplace_back(fmt::format(
        R"(DMAR: \[DMA (Read|Write) NO_PASID\] Request device \[(0000:)?{}\] fault addr 0x)",
        address_.substr(5)));
  }
  void expect_in_log(const std::string& pattern) { expected_.emplace_back(pattern); }

  static constexpr const char* kUser = "/usr/lib/pcilend-lab/target-user";
  inline static std::optional<lab::Lab> lab_;
  inline static std::string address_;
  std::string id_;
  std::string segment_;
  std::optional<lab::Running> user_;
  std::optional<lab::Running> owner_;

 private:
  const lab::Host* owner_host_ = nullptr;
  lab::Expected expected_;
  std::string before_;
};

}  // namespace pcilend::scenarios
