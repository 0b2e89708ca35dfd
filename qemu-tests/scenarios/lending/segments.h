// SPDX-License-Identifier: GPL-2.0-or-later
// Fixture: memory that processes of two hosts share.
#pragma once

#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "testing/two_hosts.h"

namespace pcilend::scenarios {

inline constexpr const char* kSegmentUser = "/usr/lib/pcilend-lab/segment-user";
// How long an owner goes on, at most.
inline constexpr std::chrono::minutes kLong{20};

// What is written on a line each.
inline std::vector<nlohmann::json> lines(const std::string& text) {
  std::vector<nlohmann::json> found;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    if (auto said = nlohmann::json::parse(line, nullptr, false); said.is_object())
      found.push_back(std::move(said));
  return found;
}

class Segments : public TwoHosts {
 protected:
  // Nothing here waits for a link as `pcilend connect` does.
  void SetUp() override {
    TwoHosts::SetUp();
    if (HasFatalFailure()) return;
    for (const auto* host : {&lender(), &borrower()}) ASSERT_OK(await_links_up(*host));
  }
  // `pcilend segment create` of that host, which goes on.
  void create(const lab::Host& host, const std::string& arguments) {
    auto started = host.start("exec pcilend segment create --json " + arguments, {{}, kLong});
    ASSERT_OK(started);
    owner_.emplace(std::move(*started));
    ASSERT_OK(host.until("pcilend segment list --json", [&](const lab::Output& output) {
      return owner_->ended() || (!lines(owner_->output_so_far()).empty() && output.code == 0);
    }));
    ASSERT_FALSE(owner_->ended());
    id_ = lines(owner_->output_so_far()).front().at("segments").at(0).at("id");
    const auto pid = host.run("pidof -s pcilend");
    ASSERT_OK(pid);
    pid_ = pid->substr(0, pid->find('\n'));
  }

  // Steps of a program, to their end: what each has said.
  static std::vector<nlohmann::json> use(const lab::Host& host, const std::string& what,
                                         std::chrono::milliseconds within = lab::kPatience) {
    const auto said = host.run(fmt::format("{} {}", kSegmentUser, what), {{}, within});
    EXPECT_OK(said);
    std::vector<nlohmann::json> steps;
    for (auto& line : lines(said.value_or("")))
      if (line.contains("step")) steps.push_back(std::move(line));
    return steps;
  }

  // One that goes on until it waits for the loss of the segment.
  void start_user(const lab::Host& host, const std::string& what) {
    auto started = host.start(fmt::format("exec {} {}", kSegmentUser, what));
    ASSERT_OK(started);
    user_.emplace(std::move(*started));
    ASSERT_OK(host.until("true", [&](const lab::Output&) {
      return user_->ended() || user_->output_so_far().find("\"lost\"") != std::string::npos;
    }));
    ASSERT_FALSE(user_->ended()) << user_->output_so_far();
  }

  // It has found all-ones in all pages, could write to them, and has come to its end.
  void expect_user_lost_it() {
    const auto ended = user_->wait();
    ASSERT_OK(ended);
    EXPECT_EQ(ended->code, 0) << ended->err << ended->out;
    int seen = 0;
    for (const auto& line : lines(ended->out)) {
      if (!line.contains("step")) continue;
      seen += line.at("step") == "lost" || line.at("step") == "ones";
      if (line.at("step") == "lost") EXPECT_EQ(line.at("lost"), true);
      if (line.at("step") == "ones") EXPECT_EQ(line.at("wrong"), 0);
    }
    EXPECT_EQ(seen, 2) << ended->out;
    user_.reset();
  }

  // It lists as many.
  static void expect_listed(const lab::Host& host, size_t count) {
    EXPECT_OK(host.until("pcilend segment list --json", [&](const lab::Output& output) {
      const auto list = nlohmann::json::parse(output.out, nullptr, false);
      return list.contains("segments") && list.at("segments").size() == count;
    }));
  }

  // Ends the owner in order, and nothing is left of it.
  void end_owner(const lab::Host& host) {
    owner_->interrupt();
    const auto ended = owner_->wait();
    ASSERT_OK(ended);
    EXPECT_EQ(ended->code, 0) << ended->err;
    owner_.reset();
    expect_listed(host, 0);
  }

  std::optional<lab::Running> owner_;
  std::optional<lab::Running> user_;
  std::string id_;
  std::string pid_;
};

}  // namespace pcilend::scenarios
