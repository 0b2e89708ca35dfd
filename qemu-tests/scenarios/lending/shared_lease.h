// SPDX-License-Identifier: GPL-2.0-or-later
// Fixture: a function that processes of three hosts have at once; one manages it
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

inline constexpr const char* kShareUser = "/usr/lib/pcilend-lab/share-user";

// A process that manages the function, or shares it, and what it says.
class ShareUser {
 public:
  static Result<ShareUser> start(const lab::Host& host, const std::string& role,
                                 const std::string& id, const std::string& steps,
                                 const char* program = kShareUser) {
    // Hosts boot meanwhile, and some go on for all rounds.
    auto running = host.start(fmt::format("exec {} {} {} {}", program, role, id, steps),
                              {{}, std::chrono::minutes(60)});
    if (!running) return tl::unexpected(std::move(running).error());
    return ShareUser(host, std::move(*running));
  }

  // What it has said of its steps until now; of one of them, the last.
  [[nodiscard]] std::vector<nlohmann::json> said() const {
    std::vector<nlohmann::json> found;
    std::istringstream in(running_.output_so_far());
    for (std::string line; std::getline(in, line);)
      if (auto said = nlohmann::json::parse(line, nullptr, false); said.is_object())
        found.push_back(std::move(said));
    return found;
  }
  [[nodiscard]] std::optional<nlohmann::json> said(const std::string& step) const {
    std::optional<nlohmann::json> last;
    for (auto& line : said())
      if (line.at("step") == step) last = std::move(line);
    return last;
  }
  [[nodiscard]] size_t times(const std::string& step) const {
    return static_cast<size_t>(std::ranges::count_if(
        said(), [&](const nlohmann::json& line) { return line.at("step") == step; }));
  }
  // Until it has said that, so many times.
  Result<> await(const std::string& step, size_t count = 1) const {
    const auto come = host_->until(
        "true", [&](const lab::Output&) { return running_.ended() || times(step) >= count; });
    if (!come) return tl::unexpected(come.error());
    if (times(step) >= count) return {};
    return fail(ErrorClass::Failure, "it has ended without '{}': {}", step,
                running_.output_so_far());
  }
  // To its end, which is as it should be.
  Result<> end() {
    PCILEND_TRY(lab::eventually("it ends", lab::kPatience, [&] { return running_.ended(); }));
    const auto ended = running_.wait();
    if (!ended) return tl::unexpected(ended.error());
    if (ended->code != 0)
      return fail(ErrorClass::Failure, "exit code {}: {}{}", ended->code, ended->err, ended->out);
    return {};
  }
  Result<> kill() {
    const auto begun = said("begun");
    if (!begun) return fail(ErrorClass::Failure, "it has not begun");
    const auto killed = host_->run(fmt::format("kill -9 {}", begun->at("pid").get<int>()));
    if (!killed) return tl::unexpected(killed.error());
    const auto ended = running_.wait();
    if (!ended) return tl::unexpected(ended.error());
    return {};
  }

 private:
  ShareUser(const lab::Host& host, lab::Running running)
      : host_(&host), running_(std::move(running)) {}

  const lab::Host* host_;
  lab::Running running_;
};

/*
 *   host1 (lender, node 4)                                      host2 (node 8), host3 (node 12)
 *   manager ──┐
 *   client  ──┼── lease fds ── edu ── root port ── IOMMU ── NTB ═══ NTB ── lease fd ── client
 *   client  ──┘                                     │                │
 *                                      each client's slice: memory of its own
 */
class SharedLease : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "shared-lease";
    start(std::move(options));
  }
  static void TearDownTestSuite() { EXPECT_OK(end_lab(lab_)); }

  // Three of these hosts, and what the first one shares.
  static void start(lab::Options options) {
    options.hosts = 3;
    ASSERT_OK(options.add_device("host1:edu,id=edu,dma_mask=0xffffffffff,root-port=on"));
    ASSERT_OK(options.add_device(
        fmt::format("host1:nvme,serial=shared,drive-size=64M{}", kNoShadowDoorbells)));
    ASSERT_OK(start_lab(options, lab_));
    for (int host : {2, 3})
      ASSERT_OK(lender().run(fmt::format("pcilend connect {}", lab_->host(host).node())));
    const auto address = lender().address("edu");
    ASSERT_OK(address);
    address_ = *address;
  }

  void SetUp() override {
    ASSERT_TRUE(lab_) << "the lab did not start";
    for (int host : {1, 2, 3}) {
      ASSERT_OK(lab_->host(host).mark_log());
      ASSERT_OK(lab_->host(host).run("rm -f /run/end-* /run/again"));
    }
    const auto offered = offer(lender(), address_);
    ASSERT_OK(offered);
    id_ = offered->at("id");
    before_ = left();
  }

  void TearDown() override {
    if (!lab_) return;
    EXPECT_OK(await_state(lender(), id_, "available"));
    EXPECT_EQ(left(), before_);
    EXPECT_OK(lender().run("pcilend unavailable " + id_));
    EXPECT_OK(lender().run("pcilend remove " + id_));
    for (int host : {1, 2, 3}) {
      expect_nothing_mapped(lab_->host(host));
      EXPECT_OK(lab_->host(host).check_log(expected_));
    }
  }

  static const lab::Host& lender() { return lab_->host(1); }

  // What processes that are gone could have left behind.
  static std::string left() {
    std::string all;
    for (int number : {1, 2, 3}) {
      const auto said = lab_->host(number).run(
          "awk '$1 == \"pcilend\" { print $3 }' /proc/modules; "
          "grep -c pcilend-lease /proc/interrupts; pcilend segment list --json");
      EXPECT_OK(said);
      all += said.value_or("");
    }
    return all;
  }

  // The manager of up to so many clients, which serves them or is mute.
  [[nodiscard]] Result<ShareUser> manager(const std::string& policy,
                                          const std::string& then = "serve") const {
    auto user = ShareUser::start(lender(), "manage", id_, fmt::format("share {} {}", policy, then));
    if (!user) return user;
    if (const auto serving = user->await("serving"); !serving)
      return tl::unexpected(serving.error());
    return user;
  }
  // A client that copies until /run/end-NAME is there.
  [[nodiscard]] Result<ShareUser> running(const lab::Host& host, const std::string& name,
                                          const std::string& then = {}) const {
    auto user = ShareUser::start(host, "join", id_,
                                 fmt::format("map 4096 copy run /run/end-{} {}", name, then));
    if (!user) return user;
    if (const auto going = user->await("running"); !going) return tl::unexpected(going.error());
    return user;
  }

  inline static std::optional<lab::Lab> lab_;
  inline static std::string address_;
  std::string id_;
  lab::Expected expected_;

 private:
  std::string before_;
};

}  // namespace pcilend::scenarios
