// SPDX-License-Identifier: GPL-2.0-or-later
// A host for tests of the command: a root directory, a fake kernel, and runs of command lines.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "cli.h"
#include "fake_client.h"

namespace pcilend::test {

namespace fs = std::filesystem;

struct Outcome {
  int status = 0;
  std::string out;
  std::string err;
};

class HostTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/pcilend-cli.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
    write("proc/self/mountinfo", "22 1 254:1 / / rw,relatime - ext4 /dev/vda1 rw\n");
    write("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const fs::path& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void link(const fs::path& path, const fs::path& target) {
    fs::create_directories((root_ / path).parent_path());
    fs::create_directories(root_ / target);
    fs::create_symlink(root_ / target, root_ / path);
  }
  // A PCI function of this host.
  void install(const std::string& bdf) {
    link("sys/bus/pci/devices/" + bdf, "sys/devices/pci0000:00/" + bdf);
  }

  Outcome run(std::vector<std::string> arguments) {
    std::istringstream in(input_);
    std::ostringstream out;
    std::ostringstream err;
    const auto loaded = [this](auto open) {
      return [this, open]() -> decltype(open()) {
        if (!loaded_) return fail(ErrorClass::Unreachable, "pcilend.ko is not loaded");
        return open();
      };
    };
    Surroundings surroundings{
        Environment(root_),
        PciNames(PCILEND_SOURCE_DIR "/tools/client/testdata/pci.ids"),
        loaded([this]() -> Result<std::unique_ptr<Client>> {
          return std::make_unique<FakeClient>(kernel_);
        }),
        loaded([this]() -> Result<std::unique_ptr<EventStream>> {
          return std::make_unique<FakeEvents>(kernel_);
        }),
        [this](std::chrono::milliseconds time) {
          slept_ += time;
          kernel_.clock += time;
        },
        [this] { return kernel_.clock; },
        [] { return std::chrono::system_clock::time_point(std::chrono::seconds(1795288500)); },
        [this](const std::vector<std::string>& words) -> Result<> {
          kernel_.log.push_back(fmt::format("{}", fmt::join(words, " ")));
          if (!program_fails_.empty())
            return fail(ErrorClass::State, "{} failed: {}", words.front(), program_fails_);
          if (program_does_) program_does_(words);
          return {};
        },
        [this](const std::vector<std::string>& words) -> Result<std::string> {
          kernel_.log.push_back(fmt::format("{}", fmt::join(words, " ")));
          if (program_says_) return program_says_(words);
          return fail(ErrorClass::State, "{} can't be run", words.front());
        },
        terminal_,
        in,
        out,
        err};
    const int status = pcilend::run(surroundings, std::move(arguments));
    return {status, out.str(), err.str()};
  }

  fs::path root_;
  FakeKernel kernel_;
  bool loaded_ = true;
  bool terminal_ = false;
  std::string input_;  // stdin
  std::chrono::milliseconds slept_{0};
  std::string program_fails_;  // what a program says then
  std::function<void(const std::vector<std::string>& words)> program_does_;
  // Of those whose output is read.
  std::function<Result<std::string>(const std::vector<std::string>& words)> program_says_;
};

inline Function nvme(uint32_t id, uint32_t state) {
  Function f;
  f.id.value = id;
  f.uuid = parse_uuid(fmt::format("70636c64-1111-8222-8333-{:012x}", id)).value();
  f.lender = id >> 16;
  f.bdf = fmt::format("0000:00:{:02x}.0", 4 + (id & 0xffff));
  f.state = state;
  f.vendor = 0x1b36;
  f.device = 0x0010;
  f.subsystem_vendor = 0x1af4;
  f.subsystem_device = 0x1100;
  f.class_revision = 0x01080202;
  f.bars = {{0, 0x4000, kBarMem64}};
  return f;
}

}  // namespace pcilend::test
