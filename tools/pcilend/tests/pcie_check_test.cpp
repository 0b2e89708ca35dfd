// SPDX-License-Identifier: GPL-2.0-or-later
// What check and available make of configuration spaces that were made for it.
#include "pcie_check.h"

#include <gmock/gmock.h>
#include <linux/pci_regs.h>

#include <cstring>

#include "host.h"

namespace pcilend::test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr size_t kExpress = 0x40;
constexpr size_t kErrors = 0x100;
constexpr size_t kDpc = 0x180;
constexpr size_t kAts = 0x1c0;
constexpr const char* kAdapter = "0000:01:00.0";
constexpr const char* kPort = "0000:00:04.0";
constexpr const char* kDrive = "0000:00:10.0";

// Configuration space with the capabilities that matter, none of which says anything bad.
class Space {
 public:
  Space() : bytes_(PCI_CFG_SPACE_EXP_SIZE, 0) {
    set<uint16_t>(PCI_STATUS, PCI_STATUS_CAP_LIST);
    set<uint8_t>(PCI_CAPABILITY_LIST, kExpress);
    set<uint8_t>(kExpress, PCI_CAP_ID_EXP);
    set<uint16_t>(kExpress + PCI_EXP_FLAGS, 2);
    control(1, 2, 0);  // 256 bytes, 512 bytes
    set<uint32_t>(kErrors, PCI_EXT_CAP_ID_ERR | 1 << 16 | kDpc << 20);
    set<uint32_t>(kDpc, PCI_EXT_CAP_ID_DPC | 1 << 16 | kAts << 20);
    set<uint32_t>(kAts, PCI_EXT_CAP_ID_ATS | 1 << 16);
  }
  template <class T>
  Space& set(size_t at, T value) {
    std::memcpy(&bytes_[at], &value, sizeof value);
    return *this;
  }
  Space& control(unsigned payload, unsigned read_request, unsigned more) {
    return set<uint16_t>(kExpress + PCI_EXP_DEVCTL,
                         static_cast<uint16_t>(payload << 5 | read_request << 12 | more));
  }
  Space& control2(uint16_t value) { return set<uint16_t>(kExpress + PCI_EXP_DEVCTL2, value); }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

class PcieCheckTest : public HostTest {
 protected:
  void SetUp() override {
    HostTest::SetUp();
    const std::string port = std::string("sys/devices/pci0000:00/") + kPort;
    link(std::string("sys/bus/pci/devices/") + kPort, port);
    link(std::string("sys/bus/pci/devices/") + kAdapter, port + "/" + kAdapter);
    install(kDrive);
  }
  void put(const std::string& address, const Space& space) {
    write("sys/bus/pci/devices/" + address + "/config", space.bytes());
  }

  // "WRONG text: cure" of each finding.
  static std::vector<std::string> lines(const std::vector<Finding>& findings) {
    std::vector<std::string> said;
    for (const Finding& finding : findings) {
      const char* const level = finding.level == Finding::Level::Ok     ? "ok"
                                : finding.level == Finding::Level::Note ? "note"
                                                                        : "WRONG";
      said.push_back(
          fmt::format("{} {}: {}: {}", level, finding.subject, finding.text, finding.cure));
    }
    return said;
  }
  std::vector<std::string> path() {
    return lines(check_adapter_path(Environment(root_), kAdapter));
  }
  std::vector<std::string> function(std::vector<std::string> adapters = {kAdapter}) {
    return lines(
        check_function_settings(Environment(root_), parse_pci_address(kDrive).value(), adapters));
  }
};

TEST_F(PcieCheckTest, WhatCantBeReadIsNotJudged) {
  EXPECT_THAT(path(), IsEmpty());
  EXPECT_THAT(function(), IsEmpty());
  write(std::string("sys/bus/pci/devices/") + kAdapter + "/config", Space().bytes().substr(0, 64));
  EXPECT_THAT(path(), IsEmpty()) << "what others than root see";
  put(kDrive, Space().set<uint16_t>(PCI_STATUS, 0));
  EXPECT_THAT(function(), IsEmpty()) << "conventional PCI";
}

TEST_F(PcieCheckTest, AHostThatIsSetRight) {
  for (const char* address : {kAdapter, kPort, kDrive}) put(address, Space());
  EXPECT_THAT(path(),
              testing::ElementsAre(HasSubstr(
                  "ok adapter 0000:01:00.0: Max Payload Size 256, Max Read Request Size 512")));
  EXPECT_THAT(function(), IsEmpty());
}

TEST_F(PcieCheckTest, PayloadThatThePortAboveDoesNotTakeIsWrong) {
  put(kAdapter, Space().control(2, 2, 0));
  put(kPort, Space().control(1, 2, 0));
  EXPECT_THAT(path(), Contains(HasSubstr("WRONG port 0000:00:04.0 of adapter 0000:01:00.0: Max "
                                         "Payload Size 256, and 0000:01:00.0 below sends up to "
                                         "512: a fatal error: boot with pci=pcie_bus_safe")));
  put(kPort, Space().control(3, 2, 0));
  EXPECT_THAT(path(), Not(Contains(HasSubstr("WRONG"))));
}

TEST_F(PcieCheckTest, PayloadOfAFunctionIsLowered) {
  put(kAdapter, Space());
  put(kDrive, Space().control(2, 2, 0));
  EXPECT_THAT(function(), Contains(HasSubstr("note 0000:00:10.0: Max Payload Size 512, more than "
                                             "the 256 of adapter 0000:01:00.0")));
  EXPECT_THAT(function({}), IsEmpty());
}

TEST_F(PcieCheckTest, ShortCompletionTimeoutsAreWrong) {
  put(kAdapter, Space());
  put(kPort, Space().control2(0x10));
  EXPECT_THAT(path(), Contains(HasSubstr("note port 0000:00:04.0 of adapter 0000:01:00.0: its "
                                         "Completion Timeout is off")));
  for (const uint16_t range : {1, 2}) {
    put(kDrive, Space().control2(range));
    EXPECT_THAT(function(), Contains(HasSubstr("firmware's setup"))) << "it has no other ranges";
    put(kDrive, Space().control2(range).set<uint32_t>(kExpress + PCI_EXP_DEVCAP2, 2));
    EXPECT_THAT(function(), Contains(HasSubstr("WRONG 0000:00:10.0: its Completion Timeout is 10 "
                                               "ms at most: reads through an NTB may take longer: "
                                               "setpci -s 0000:00:10.0 CAP_EXP+28.W=6:f")));
  }
  for (const uint16_t range : {0, 5, 6, 9}) {
    put(kDrive, Space().control2(range));
    EXPECT_THAT(function(), IsEmpty()) << range;
  }
}

TEST_F(PcieCheckTest, FatalLossesAreSaid) {
  constexpr uint32_t kBoth = PCI_ERR_UNC_SURPDN | PCI_ERR_UNC_COMP_TIME;
  put(kAdapter, Space().set(kErrors + PCI_ERR_UNCOR_SEVER, kBoth));
  put(kPort, Space().set(kErrors + PCI_ERR_UNCOR_SEVER, uint32_t{PCI_ERR_UNC_SURPDN}));
  EXPECT_THAT(path(), Contains(HasSubstr("note adapter 0000:01:00.0: Surprise Down and Completion "
                                         "Timeout is a fatal error")));
  EXPECT_THAT(path(), Contains(HasSubstr("setpci -s 0000:00:04.0 ECAP_AER+c.L=0:20")));
  put(kAdapter,
      Space().set(kErrors + PCI_ERR_UNCOR_SEVER, kBoth).set(kErrors + PCI_ERR_UNCOR_MASK, kBoth));
  put(kPort, Space());
  EXPECT_THAT(path(), Not(Contains(HasSubstr("fatal")))) << "masked";
}

TEST_F(PcieCheckTest, ContainmentIsSaid) {
  put(kAdapter, Space());
  put(kPort, Space().set<uint16_t>(kDpc + PCI_EXP_DPC_CTL, 1));
  EXPECT_THAT(path(), Contains(HasSubstr("note port 0000:00:04.0 of adapter 0000:01:00.0: "
                                         "Downstream Port Containment is on")));
}

TEST_F(PcieCheckTest, WhatALentFunctionMayNotDo) {
  put(kDrive, Space()
                  .control(1, 0, PCI_EXP_DEVCTL_NOSNOOP_EN | PCI_EXP_DEVCTL_RELAX_EN)
                  .set<uint16_t>(kAts + PCI_ATS_CTRL, PCI_ATS_CTRL_ENABLE));
  const auto said = function();
  EXPECT_THAT(said, Contains(HasSubstr("ok 0000:00:10.0: No Snoop: off while it is lent")));
  EXPECT_THAT(said, Contains(HasSubstr("ok 0000:00:10.0: Relaxed Ordering is on")));
  EXPECT_THAT(said, Contains(HasSubstr("note 0000:00:10.0: it translates addresses by itself")));
  EXPECT_THAT(said, Contains(HasSubstr("boot with pci=noats")));
  EXPECT_THAT(said, Contains(HasSubstr("Max Read Request Size 128: it reads a borrower's memory "
                                       "slowly: setpci -s 0000:00:10.0 CAP_EXP+8.W=2000:7000")));
  put(kDrive, Space().control(1, 2, PCI_EXP_DEVCTL_NOSNOOP_EN | PCI_EXP_DEVCTL_PHANTOM));
  EXPECT_THAT(function(), Contains(HasSubstr("No Snoop and Phantom Functions: off")));
}

TEST_F(PcieCheckTest, AvailableWarnsOfWhatIsWrong) {
  put(kDrive, Space().control2(1));
  Function drive = nvme(0x8000c, PCILEND_FUNCTION_ADDED);
  ASSERT_EQ(drive.bdf, kDrive);
  kernel_.functions = {drive};
  Link full;
  full.adapter = kAdapter;
  full.requesters = 64;
  full.requesters_used = 64;
  kernel_.links = {full};
  put(kAdapter, Space());
  const Outcome result = run({"available", kDrive});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("its Completion Timeout is 10 ms at most"));
  EXPECT_THAT(result.err, HasSubstr("adapter 0000:01:00.0: all 64 entries of its table of "
                                    "requesters are used"));
}

}  // namespace
}  // namespace pcilend::test
