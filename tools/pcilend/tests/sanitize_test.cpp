// SPDX-License-Identifier: GPL-2.0-or-later
// What `available --sanitize` and `sanitize` do to a drive.
#include <nlohmann/json.hpp>

#include "cli_fixture.h"

namespace pcilend::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(CliTest, OnlyDrivesAreErasedAfterALease) {
  expect_refused(
      {"available", "--sanitize", "0000:00:05.0"}, ErrorClass::State,
      "pcilend: 0000:00:05.0: --sanitize: nvme-cli is not installed: apt install nvme-cli");
  write("usr/sbin/nvme", "");
  kernel_.find({0, 0, 5, 0})->class_revision = 0x02000000;
  expect_refused({"available", "--sanitize", "0000:00:05.0"}, ErrorClass::State,
                 "only NVMe drives can be erased after a lease");
}

class SanitizeTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    write("usr/sbin/nvme", "");
    write(kState, "live\n");
    write("sys/devices/pci0000:00/0000:00:05.0/nvme/nvme3/power/control", "auto\n");
    program_says_ = [this](const auto& words) { return drive_says(words); };
    EXPECT_EQ(run({"available", "--sanitize", "0000:00:05.0"}).status, 0);
    Function& f = *kernel_.find({0, 0, 5, 0});
    f.state = PCILEND_FUNCTION_QUARANTINED;
    f.dirty = true;
    kernel_.log.clear();
  }

  static constexpr const char* kState = "sys/devices/pci0000:00/0000:00:05.0/nvme/nvme3/state";
  static constexpr const char* kList = "/usr/sbin/nvme list-ns /dev/nvme3 --output-format=json";
  static constexpr const char* kIdentify = "/usr/sbin/nvme id-ctrl /dev/nvme3 --raw-binary";

  Result<std::string> drive_says(const std::vector<std::string>& words) {
    if (words.at(1) == "id-ctrl") return identify_;
    const bool all = words.back() == "--all";
    if (!all) return active_;
    if (allocated_.empty()) return fail(ErrorClass::State, "nvme failed: Invalid Field");
    return allocated_;
  }
  // nvme-cli 2.13 prints it on several lines.
  static std::string list(const std::vector<uint32_t>& ids) {
    nlohmann::json json{{"nsid_list", nlohmann::json::array()}};
    for (const uint32_t id : ids) json["nsid_list"].push_back({{"nsid", id}});
    return json.dump(2) + "\n";
  }
  // The drive has namespace management.
  void manage(const std::vector<uint32_t>& allocated) {
    identify_[256] = 0x0a;
    allocated_ = list(allocated);
  }
  // It is not lent, for a reason with this text.
  void expect_kept(const std::string& text) {
    kernel_.log.clear();
    kernel_.find({0, 0, 5, 0})->state = PCILEND_FUNCTION_QUARANTINED;
    const Outcome result = run({"sanitize", "0000:00:05.0"});
    EXPECT_NE(result.status, 0) << text;
    EXPECT_THAT(result.err, HasSubstr(text));
    EXPECT_THAT(result.err, HasSubstr("; it stays quarantined: mend that"));
    EXPECT_EQ(kernel_.log.back(), "available sanitize 0000:00:05.0");
    EXPECT_EQ(kernel_.find({0, 0, 5, 0})->state, PCILEND_FUNCTION_QUARANTINED);
  }
  [[nodiscard]] bool something_was_erased() const {
    return std::ranges::any_of(kernel_.log, [](const std::string& line) {
      return line.starts_with("/usr/sbin/nvme format");
    });
  }

  std::string identify_ = std::string(4096, 0);
  std::string active_ = list({1, 2});
  std::string allocated_;
};

// The drive says which there are: the kernel has none of them yet.
TEST_F(SanitizeTest, AllNamespacesAreErasedBeforeItIsLentAgain) {
  const Outcome result = run({"sanitize", "0000:00:05.0"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("[available]"));
  EXPECT_THAT(kernel_.log,
              ElementsAre("unavailable 0000:00:05.0", kList, kIdentify,
                          "/usr/sbin/nvme format /dev/nvme3 --namespace-id=1 --ses=1 --force",
                          "/usr/sbin/nvme format /dev/nvme3 --namespace-id=2 --ses=1 --force",
                          kList, kIdentify, "available sanitize sanitized 0000:00:05.0"));
  kernel_.log.clear();
  expect_refused({"sanitize", "0000:00:05.0"}, ErrorClass::State,
                 "pcilend: 0000:00:05.0: nothing of a lease is on it");
}

TEST_F(SanitizeTest, ItStaysQuarantinedIfThatFails) {
  program_fails_ = "NVMe status: Access Denied";
  const Outcome result = run({"sanitize", "0000:00:05.0"});
  EXPECT_EQ(result.status, static_cast<int>(ErrorClass::State));
  EXPECT_EQ(result.err,
            "pcilend: 0000:00:05.0: /usr/sbin/nvme failed: NVMe status: Access Denied; it stays "
            "quarantined: mend that, then run 'pcilend sanitize 0000:00:05.0'\n");
  EXPECT_EQ(kernel_.log.back(), "available sanitize 0000:00:05.0");
  EXPECT_EQ(kernel_.find({0, 0, 5, 0})->state, PCILEND_FUNCTION_QUARANTINED);
}

TEST_F(SanitizeTest, ItsControllerIsLiveBeforeItIsAsked) {
  write(kState, "connecting\n");
  expect_kept("this host's nvme driver has not started it in 60 s");
  EXPECT_EQ(slept_, std::chrono::seconds(60));
  EXPECT_THAT(kernel_.log,
              ElementsAre("unavailable 0000:00:05.0", "available sanitize 0000:00:05.0"));
}

TEST_F(SanitizeTest, WhatIsNotAttachedIsNotForgotten) {
  manage({1, 2});
  EXPECT_EQ(run({"sanitize", "0000:00:05.0"}).status, 0);
  EXPECT_THAT(kernel_.log, testing::Contains(std::string(kList) + " --all").Times(2));
  kernel_.find({0, 0, 5, 0})->dirty = true;
  manage({1, 2, 3, 7});
  expect_kept(
      "namespace 3, 7 of nvme3 is allocated and not attached, so it can't be erased: run 'pcilend "
      "unavailable 0000:00:05.0', then attach it (nvme attach-ns)");
  EXPECT_FALSE(something_was_erased());
}

// A drive that can list all, and does not, may hide some.
TEST_F(SanitizeTest, AListThatFailsIsNoListOfNone) {
  manage({1, 2});
  allocated_.clear();
  expect_kept("nvme failed: Invalid Field");
  identify_.resize(4095);
  expect_kept("nvme id-ctrl has printed 4095 bytes of 4096");
  EXPECT_FALSE(something_was_erased());
}

TEST_F(SanitizeTest, WithoutANamespaceNothingIsErased) {
  active_ = list({});
  expect_kept("nvme3 has no namespace");
}

TEST_F(SanitizeTest, NamespacesThatComeMeanwhileAreNotLent) {
  program_does_ = [this](const auto&) { active_ = list({1, 2, 3}); };
  expect_kept("namespaces of nvme3 have come or gone while it was erased");
  manage({1, 2, 3});
  program_does_ = [this](const auto&) { manage({1, 2, 3, 4}); };
  expect_kept("namespaces of nvme3 have come or gone while it was erased");
}

TEST_F(SanitizeTest, WhatIsNoListOfNamespacesIsSaid) {
  std::vector<uint32_t> many(1024);
  std::iota(many.begin(), many.end(), 1);
  for (const auto& [text, error] : std::vector<std::pair<std::string, const char*>>{
           {"", "nvme list-ns: "},
           {"[   0]:0x1\n", "nvme list-ns: "},
           {"[]", "there is no 'nsid_list'"},
           {R"({"nsid_list":{}})", "is not a list of namespaces"},
           {R"({"nsid_list":[1]})", "there is no 'nsid'"},
           {R"({"nsid_list":[{"nsid":0}]})", "0 is not the id of a namespace"},
           {R"({"nsid_list":[{"nsid":-1}]})", "-1 is not the id of a namespace"},
           {R"({"nsid_list":[{"nsid":"1"}]})", "'1' is not the id of a namespace"},
           {R"({"nsid_list":[{"nsid":4294967295}]})", "is not the id of a namespace"},
           {R"({"nsid_list":[{"nsid":1},{"nsid":1}]})", "a namespace is there twice"},
           {list(many), "it has 1024 namespaces or more"}}) {
    active_ = text;
    expect_kept(error);
    EXPECT_FALSE(something_was_erased()) << text;
  }
}

TEST_F(SanitizeTest, ADiskThatIsUsedHereIsNotErased) {
  link("sys/class/block/nvme3n1", "sys/devices/pci0000:00/0000:00:05.0/nvme/nvme3/nvme3n1");
  write("sys/devices/pci0000:00/0000:00:05.0/nvme/nvme3/nvme3n1/dev", "259:0\n");
  write("proc/self/mountinfo", "40 22 259:0 / /data rw - ext4 /dev/nvme3n1 rw\n");
  expect_kept("is mounted on /data");
  EXPECT_FALSE(something_was_erased());
}

}  // namespace
}  // namespace pcilend::test
