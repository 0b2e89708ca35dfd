// SPDX-License-Identifier: GPL-2.0-or-later
// What tests of the hook start from.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "fake_client.h"
#include "hook.h"

namespace pcilend {

namespace fs = std::filesystem;

inline constexpr const char* kFirst = "70636c64-0000-8000-8000-000000000001";
inline constexpr const char* kSecond = "70636c64-0000-8000-8000-000000000002";
inline constexpr const char* kAny = "9c2c1b0a-8899-4abb-8cdd-eeff00112233";
inline constexpr const char* kDomain = "2f1e6b1a-4d0c-4f6c-9a51-0d5a5f1f7a01";
inline constexpr const char* kOtherDomain = "2f1e6b1a-4d0c-4f6c-9a51-0d5a5f1f7a02";

class QuietSteps final : public Steps {
 public:
  void begin(std::string_view, std::string_view) override {}
};

// Two functions of node 4, seen by node 8, and a sysfs in which mediated devices come and go.
class HookTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/pcilend-hook.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
    environment_ = Environment(root_);
    for (const auto& [id, uuid] : {std::pair{0x40001u, kFirst}, {0x40002u, kSecond}}) {
      Function f;
      f.id.value = id;
      f.uuid = parse_uuid(uuid).value();
      f.lender = 4;
      f.bdf = "0000:00:05.0";
      f.state = PCILEND_FUNCTION_AVAILABLE;
      f.vendor = 0x1b36;
      f.device = 0x0010;
      kernel_.functions.push_back(f);
      touch(fmt::format("sys/bus/pcilend/devices/{:x}/mdev_supported_types/pcilend-function/create",
                        id));
    }
    fs::create_directories(root_ / "sys/bus/mdev/devices");
  }
  void TearDown() override { fs::remove_all(root_); }

  void touch(const fs::path& path) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path).flush();
  }
  std::string text(const fs::path& path) {
    std::ifstream file(root_ / path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // As the kernel would have after a write to create.
  void add_mdev(const std::string& uuid, bool ready = true) {
    touch(fmt::format("sys/bus/mdev/devices/{}/remove", uuid));
    if (ready) touch(fmt::format("sys/bus/mdev/devices/{}/iommu_group", uuid));
  }
  // As if a mediated device had borrowed it for itself.
  static void hold(Function& f, const std::string& owner) {
    f.state = PCILEND_FUNCTION_BORROWED;
    f.borrower = 8;
    f.owner = owner;
  }
  std::string created(uint32_t id) {
    return text(fmt::format(
        "sys/bus/pcilend/devices/{:x}/mdev_supported_types/pcilend-function/create", id));
  }
  std::string removed(const std::string& uuid) {
    return text(fmt::format("sys/bus/mdev/devices/{}/remove", uuid));
  }
  fs::path record_path(const char* domain) {
    return root_ / fmt::format("run/pcilend/domains/{}.json", domain);
  }

  static Domain domain(const char* uuid, std::vector<const char*> functions) {
    Domain d{"guest", parse_uuid(uuid).value(), {}, {}};
    for (const char* f : functions) d.mdevs.push_back(parse_uuid(f).value());
    return d;
  }
  // Of which one, kAny, may be whatever `choice` says.
  static Domain choosing(Choice choice) {
    Domain d = domain(kDomain, {kAny});
    choice.mdev = d.mdevs[0];
    d.options->choices = {std::move(choice)};
    return d;
  }
  HookContext context() {
    return {environment_,
            names_,
            [this]() -> Result<std::unique_ptr<Client>> {
              return std::make_unique<test::FakeClient>(kernel_);
            },
            [this](std::chrono::milliseconds time) {
              ++sleeps_;
              now_ += time;
              on_sleep_();
            },
            [this] { return now_; },
            steps_};
  }
  Result<> prepare(const Domain& d) {
    auto c = context();
    return prepare_domain(c, d);
  }
  Result<> release(const Domain& d) {
    auto c = context();
    return release_domain(c, d);
  }

  Result<> reconcile(const Domain& d) {
    auto c = context();
    return reconcile_domain(c, d);
  }

  fs::path root_;
  Environment environment_;
  PciNames names_{std::string(PCILEND_SOURCE_DIR) + "/tools/client/testdata/pci.ids"};
  test::FakeKernel kernel_;
  QuietSteps steps_;
  int sleeps_ = 0;
  std::function<void()> on_sleep_ = [] {};
  std::chrono::steady_clock::time_point now_;
};

}  // namespace pcilend
