// SPDX-License-Identifier: GPL-2.0-or-later
// Fixture: a shared drive over two adapters (docs/nvme.md).
#pragma once

#include <gmock/gmock.h>

#include <optional>
#include <string>
#include <vector>

#include "main_job/admin_steps.h"
#include "scenarios/lending/left.h"
#include "scenarios/lending/nvme_bench.h"
#include "scenarios/lending/process.h"
#include "testing/asserts.h"
#include "testing/suite_lab.h"
#include "testing/two_hosts.h"

namespace pcilend::scenarios {

inline constexpr const char* kUser = "/usr/lib/pcilend-lab/path-user";

/*
 *   host1 (lender, node 4)                                host2 (node 8)
 *   manager ── admin queue ──┐            ┌══ path 1 ══┐  path-user: a client over each path,
 *   client ── its queue ── nvme ── IOMMU ═╪            ╪═ with a queue over each
 *   commands of host2 ───────┘            └══ path 2 ══┘
 */
class NvmePaths : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "nvme-paths";
    options.paths = 2;
    for (int host : {1, 2}) options.kernel_arguments[host].push_back("pcilend.lease_ms=10000");
    // Of its own QEMU has one page for all DMA over the NTB, and hangs when a command that waits
    // for it is ended.
    ASSERT_OK(options.add_device(
        fmt::format("host1:nvme,serial=paths,drive-size=64M,max_ioqpairs=31,msix_qsize=32,"
                    "x-max-bounce-buffer-size=16M{}",
                    kNoShadowDoorbells)));
    ASSERT_OK(start_lab(options, lab_));
    ASSERT_OK(lender().run(fmt::format("pcilend connect {}", lab_->host(2).node())));
    const auto address = lender().address(0);
    ASSERT_OK(address);
    address_ = *address;
  }
  static void TearDownTestSuite() { EXPECT_OK(end_lab(lab_)); }

  void SetUp() override {
    ASSERT_TRUE(lab_) << "the lab did not start";
    for (int host : {1, 2}) ASSERT_OK(lab_->host(host).mark_log());
    const auto offered = offer(lender(), address_);
    ASSERT_OK(offered);
    id_ = offered->at("id");
    before_ = left_by_processes(*lab_);
    // What clients that are gone ring still, and what is stored for them, the lender's IOMMU stops.
    expected_.emplace_back("DMAR: DRHD: handling fault status reg");
    expected_.emplace_back(
        R"(DMAR: \[DMA (Read|Write) NO_PASID\] Request device \[(0000:)?00:0[0-9a-f]\.0\] fault addr 0x)");
    ASSERT_OK(lender().until("true", [&](const lab::Output&) { return paths().size() == 2; }));
    paths_ = paths();
    manage();
  }

  void TearDown() override {
    if (!lab_) return;
    for (int path : {1, 2}) {
      EXPECT_OK(lab_->fabric().release(2, 1, path));
      EXPECT_OK(lab_->fabric().tell_events(1, 2, true, path));
    }
    EXPECT_OK(lab_->fabric().link_up(1, 2));
    user_.reset();
    other_.reset();
    if (manager_) {
      const auto code = manager_->end("TERM");
      EXPECT_OK(code);
      EXPECT_EQ(code.value_or(1), 0) << manager_->said();
    }
    manager_.reset();
    EXPECT_OK(await_state(lender(), id_, "available"));
    // A segment is there until the host that had it connected has let go of it.
    EXPECT_OK(lab::eventually("nothing is left", lab::kPatience,
                              [&] { return left_by_processes(*lab_) == before_; }));
    // What a lease had over a link that was down goes when that is up, and both hosts have said so.
    for (int host : {1, 2})
      EXPECT_OK(lab::eventually("nothing is mapped over links of " + lab_->host(host).name(),
                                lab::kPatience, [&] { return is_unmapped(lab_->host(host)); }));
    EXPECT_OK(lender().run("pcilend unavailable " + id_));
    EXPECT_OK(lender().run("pcilend remove " + id_));
    for (int host : {1, 2}) {
      expect_nothing_mapped(lab_->host(host));
      EXPECT_OK(lab_->host(host).check_log(expected_));
    }
  }

  static bool is_unmapped(const lab::Host& host) {
    const auto links = host.json("pcilend link --json");
    return links && std::ranges::all_of(links->at("links"), [](const nlohmann::json& link) {
             return link.at("export_bytes") == 0 && link.at("slot_bytes") == 0;
           });
  }
  static const lab::Host& lender() { return lab_->host(1); }
  static const lab::Host& borrower() { return lab_->host(2); }
  static const lab::Fabric& fabric() { return lab_->fabric(); }

  // Over which the borrower is offered it.
  [[nodiscard]] std::vector<std::string> paths() const {
    const auto function = function_on(borrower(), id_);
    return function ? function->value("paths", std::vector<std::string>())
                    : std::vector<std::string>();
  }

  void manage() {
    auto manager =
        Process::start(lender(), fmt::format("pcilend-nvme-manager --clients 12 {}", address_));
    ASSERT_OK(manager);
    manager_.emplace(std::move(*manager));
    ASSERT_OK(manager_->await("is shared: up to"));
    for (const auto* host : {&lender(), &borrower()})
      ASSERT_OK(await_state(*host, id_, "borrowed"));
  }

  [[nodiscard]] std::string user_command(const std::string& options) const {
    return fmt::format("{} {} --path {},{} {}", kUser, id_, paths_[0], paths_[1], options);
  }
  // It writes and compares, over both paths.
  void start_user(const std::string& options = {}) {
    auto user = Process::start(borrower(), user_command(options));
    ASSERT_OK(user);
    user_.emplace(std::move(*user));
    ASSERT_OK(user_->await("\npass "));
    EXPECT_EQ(last("up"), 2);
  }
  // Of the line that begins so, the last one: the number behind that word.
  [[nodiscard]] long last(const std::string& word, const std::string& line = "pass") const {
    const std::string said = user_->said();
    const size_t begin = said.rfind("\n" + line + " ");
    if (begin == std::string::npos) return -1;
    const size_t end = said.find('\n', begin + 1);
    if (end == std::string::npos) return last_whole(said, word, line, begin);
    return word_of(said.substr(begin + 1, end - begin), word);
  }
  // So many more passes are through, and right.
  void await_passes(size_t more = 2) {
    ASSERT_OK(user_->await("\npass ", user_->times("\npass ") + more));
  }
  void await_both() {
    ASSERT_OK(lab::eventually("both paths are there", lab::kPatience,
                              [&] { return user_->ended() || last("up") == 2; }));
    ASSERT_FALSE(user_->ended()) << user_->said();
  }
  void expect_well() {
    const auto code = user_->end("TERM");
    ASSERT_OK(code);
    EXPECT_EQ(*code, 0) << tail(user_->said());
    user_.reset();
  }
  static std::string tail(const std::string& text) {
    return text.size() > 2000 ? text.substr(text.size() - 2000) : text;
  }

  // A client of the lender's own, which none of all that must disturb.
  void start_other() {
    auto other = Process::start(
        lender(), fmt::format("{} {} --shared --slice 1M --write --commands 4 --size 512 "
                              "--block 65536 --rounds {}",
                              kBench, id_, kMany));
    ASSERT_OK(other);
    other_.emplace(std::move(*other));
    ASSERT_OK(other_->await("round 1:"));
  }
  void expect_other_well() {
    const auto code = other_->end("TERM");
    ASSERT_OK(code);
    EXPECT_EQ(*code, 0) << tail(other_->said());
    other_.reset();
  }

  inline static std::optional<lab::Lab> lab_;
  inline static std::string address_;
  std::string id_;
  std::vector<std::string> paths_;
  std::optional<Process> manager_;
  std::optional<Process> user_;
  std::optional<Process> other_;
  lab::Expected expected_;

 private:
  static long word_of(const std::string& line, const std::string& word) {
    const size_t at = line.find(word + " ");
    return at == std::string::npos ? -1 : std::strtol(line.c_str() + at + word.size(), nullptr, 10);
  }
  static long last_whole(const std::string& said, const std::string& word, const std::string& line,
                         size_t before) {
    const size_t begin =
        before == 0 ? std::string::npos : said.rfind("\n" + line + " ", before - 1);
    return begin == std::string::npos
               ? -1
               : word_of(said.substr(begin + 1, said.find('\n', begin + 1) - begin), word);
  }

  std::string before_;
};

}  // namespace pcilend::scenarios
