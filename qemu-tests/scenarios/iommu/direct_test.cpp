// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

/*
 *   host1 (lender, node 4)              host2 (borrower, node 8)
 *   nvme ── IOMMU ── NTB ══════════════ NTB ── its memory, no IOMMU
 */
class Direct : public TwoHosts {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "direct";
    // All memory must be in the DMA area; hosts on the debug kernel have more than fits.
    options.kernel_arguments[2] = {"intel_iommu=off", "pcilend.direct=1", "mem=2000M"};
    ASSERT_OK(make_rom());
    const std::string with_rom = ",romfile=" + rom().path();
    ASSERT_OK(options.add_device("host1:nvme,serial=direct,drive-size=64M" + with_rom));
    ASSERT_OK(options.add_device("host2:nvme,serial=own,drive-size=16M" + with_rom));
    ASSERT_OK(start_lab(options, lab_));
  }

  [[nodiscard]] static Result<nlohmann::json> link_of(const lab::Host& host) {
    const auto links = host.json("pcilend link --json");
    if (!links) return tl::unexpected(links.error());
    return links->at("links").at(0);
  }

  // What check says of a subject.
  [[nodiscard]] static Result<nlohmann::json> finding(const lab::Host& host,
                                                      const std::string& subject) {
    const auto checked = host.exec("pcilend check --json");
    if (!checked) return tl::unexpected(checked.error());
    const auto json = nlohmann::json::parse(checked->out, nullptr, false);
    if (json.is_object())
      for (const auto& one : json.at("check").at("findings"))
        if (one.at("subject").get<std::string>().starts_with(subject) &&
            one.at("text").get<std::string>().find("IOMMU") != std::string::npos)
          return one;
    return fail(ErrorClass::NotFound, "check says nothing of {}: {}", subject, checked->out);
  }

  // The borrowed drive carries data, and its lender finds there what was written.
  static void expect_carries(const MainJob& job, const std::string& lender_address) {
    const auto drive = job.borrow();
    ASSERT_OK(drive);
    expect_rom(job.borrower().run(read_rom("/sys/bus/pci/devices/" + drive->address)));
    EXPECT_OK(job.borrower().run(
        fmt::format("fio --name=verify --filename={} --direct=1 --rw=randwrite --bs=4k --offset=1M "
                    "--size=512k --verify=crc32c --verify_fatal=1",
                    drive->disk),
        {{}, 5min}));
    const auto sum = job.borrower().run(
        fmt::format("head -c 512K /dev/urandom >/tmp/data && "
                    "dd if=/tmp/data of={} bs=16k oflag=direct 2>/dev/null && sha256sum </tmp/data",
                    drive->disk));
    ASSERT_OK(sum);
    ASSERT_OK(job.borrower().run("pcilend return " + job.id()));
    ASSERT_OK(job.lender().run("pcilend unavailable " + lender_address));
    const auto disk = job.lender_disk();
    ASSERT_OK(disk);
    const auto same = job.lender().run(
        fmt::format("dd if={} bs=16k count=32 iflag=direct 2>/dev/null | sha256sum", *disk));
    ASSERT_OK(same);
    EXPECT_EQ(*same, *sum);
  }

  // Taken back from its borrower, and made available without --direct.
  void expect_isolated_after(const std::string& address) {
    ASSERT_OK(lender().run("pcilend available --direct " + address));
    ASSERT_OK(borrower().run("pcilend borrow --wait " + job().id()));
    expect_stopped_accesses();
    ASSERT_OK(lender().run("pcilend unavailable --grace 1 " + address));
    ASSERT_OK(lender().run("pcilend available " + address));
    const auto function = job().function_on(lender());
    ASSERT_OK(function);
    EXPECT_EQ(function->at("state"), "available");
    EXPECT_EQ(function->at("direct"), false) << "it reaches all memory, though nobody wants that";
    ASSERT_OK(lender().run("pcilend unavailable " + address));
  }

  // Who may borrow it is told that it is direct, and that this is nothing for VMs.
  static void expect_direct(const MainJob& job) {
    for (const auto* host : {&job.lender(), &job.borrower()}) {
      const auto function = job.function_on(*host);
      ASSERT_OK(function);
      EXPECT_EQ(function->at("direct"), true) << host->name();
    }
    const auto shown = job.borrower().run("pcilend show " + job.id());
    ASSERT_OK(shown);
    EXPECT_NE(shown->find("no IOMMU: it reaches all memory and all interrupts of its lender"),
              std::string::npos)
        << *shown;
    const auto refused = job.borrower().exec("pcilend borrow --frontend vfio " + job.id());
    ASSERT_OK(refused);
    EXPECT_NE(refused->code, 0);
    EXPECT_NE(refused->err.find("it is lent without an IOMMU (direct)"), std::string::npos)
        << refused->err;
  }
};

/*
 *   host1                               host2, without IOMMU
 *   nvme ══════════════════════════════ nvme driver of the host: its memory as it is; no VMs
 */
TEST_F(Direct, ABorrowerWithoutIommu) {
  const auto link = link_of(borrower());
  ASSERT_OK(link);
  EXPECT_EQ(link->at("state"), "up");
  EXPECT_EQ(link->at("direct"), true);
  const auto other = link_of(lender());
  ASSERT_OK(other);
  EXPECT_EQ(other->at("direct"), false);
  const auto noted = finding(borrower(), "adapter");
  ASSERT_OK(noted);
  EXPECT_EQ(noted->at("level"), "note") << noted->dump();

  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  const auto refused = borrower().exec("pcilend borrow --frontend vfio " + job().id());
  ASSERT_OK(refused);
  EXPECT_NE(refused->code, 0);
  EXPECT_NE(refused->err.find("VMs can't borrow over an adapter without an IOMMU"),
            std::string::npos)
      << refused->err;

  expect_carries(job(), job().id());
}

/*
 *   host2: no IOMMU, and nobody has said that this is wanted
 */
TEST_F(Direct, WithoutIommuOnlyByChoice) {
  ASSERT_OK(reload_pcilend(borrower(), "direct=0"));
  const auto link = link_of(borrower());
  ASSERT_OK(link);
  EXPECT_EQ(link->at("state"), "refused");
  EXPECT_NE(link->at("reason").get<std::string>().find("boot with intel_iommu=on"),
            std::string::npos)
      << link->dump();
  const auto wrong = finding(borrower(), "adapter");
  ASSERT_OK(wrong);
  EXPECT_EQ(wrong->at("level"), "error") << wrong->dump();
  EXPECT_NE(wrong->at("hint").get<std::string>().find("direct=1"), std::string::npos);

  ASSERT_OK(reload_pcilend(borrower(), "direct=1"));
  EXPECT_NE(borrower().log().find("reach all memory and all interrupts of this host"),
            std::string::npos);
  EXPECT_OK(lab::eventually("the link is up again", lab::kPatience, [&] {
    const auto again = link_of(lender());
    return again && again->at("state") == "up";
  }));
}

/*
 *   host1, behind an IOMMU              host2, without, and the lender now
 *   nvme driver of the host ═══════════ nvme: its DMA goes to the window itself
 */
TEST_F(Direct, LentByAHostWithoutIommu) {
  const auto own = borrower().address(0);
  ASSERT_OK(own);
  const std::string& address = *own;
  const auto checked = borrower().exec("pcilend check " + address);
  ASSERT_OK(checked);
  EXPECT_NE(checked->code, 0);
  EXPECT_NE(checked->out.find("it is not behind an IOMMU: enable VT-d"), std::string::npos)
      << checked->out << checked->err;
  ASSERT_OK(borrower().run("pcilend add " + address));
  const auto refused = borrower().exec("pcilend available " + address);
  ASSERT_OK(refused);
  EXPECT_NE(refused->code, 0);
  EXPECT_NE(refused->err.find("it is not behind an IOMMU: enable VT-d"), std::string::npos)
      << refused->err;
  ASSERT_OK(borrower().run("pcilend remove " + address));

  MainJob back(borrower(), lender(), address, "none");
  ASSERT_OK(back.lend("--direct"));
  ASSERT_OK(back.see_available());
  expect_direct(back);
  const auto allowed = borrower().exec("pcilend check " + address);
  ASSERT_OK(allowed);
  EXPECT_EQ(allowed->out.find("it is not behind an IOMMU"), std::string::npos) << allowed->out;
  ASSERT_OK(borrower().run("pcilend save"));
  const auto same = borrower().run("pcilend restore --dry-run");
  ASSERT_OK(same);
  EXPECT_EQ(same->find("available"), std::string::npos) << *same;
  const auto saved = borrower().run("cat /etc/pcilend/saved.json && rm /etc/pcilend/saved.json");
  ASSERT_OK(saved);
  EXPECT_NE(saved->find("\"direct\": true"), std::string::npos) << *saved;
  expect_carries(back, address);
  EXPECT_OK(back.clean_up());
}

/*
 *   host1: connects it <── 2 MiB in one piece ── host2, without IOMMU
 */
TEST_F(Direct, ASegmentOfMemoryInOnePiece) {
  constexpr const char* kUser = "/usr/lib/pcilend-lab/segment-user";
  const auto refused = borrower().exec("pcilend segment create --size 16M 4");
  ASSERT_OK(refused);
  EXPECT_EQ(refused->code, 7) << refused->err;
  EXPECT_NE(refused->err.find("the memory is not in one piece"), std::string::npos) << refused->err;
  ASSERT_OK(borrower().run("echo 1 >/proc/sys/vm/nr_hugepages"));
  auto owner = borrower().start(fmt::format("exec {} create 4,2097152,huge fill 3 stay", kUser));
  ASSERT_OK(owner);
  ASSERT_OK(borrower().until("true", [&](const lab::Output&) {
    return owner->ended() || owner->output_so_far().find("fill") != std::string::npos;
  }));
  const std::string said = owner->output_so_far();
  ASSERT_FALSE(owner->ended()) << said << owner->wait()->err;
  const auto id = nlohmann::json::parse(said.substr(0, said.find('\n'))).at("id");
  const auto used = lender().run(
      fmt::format("{} connect {} check 3 fill 4 check 4", kUser, id.get<std::string>()));
  ASSERT_OK(used);
  EXPECT_EQ(used->find("\"wrong\":1"), std::string::npos) << *used;
  EXPECT_NE(used->find("\"wrong\":0"), std::string::npos) << *used;
  owner->interrupt();
  ASSERT_OK(owner->wait());
  ASSERT_OK(borrower().run("echo 0 >/proc/sys/vm/nr_hugepages"));
}

/*
 *   host1                               host2, without IOMMU
 *   nvme ── IOMMU, group of type ══════ nvme driver of the host
 *           identity
 */
TEST_F(Direct, LentFromAnIdentityGroup) {
  const auto own = lender().address(0);
  ASSERT_OK(own);
  const std::string& address = *own;
  ASSERT_OK(lender().run("pcilend add " + address));
  const auto refused = lender().exec("pcilend available --direct " + address);
  ASSERT_OK(refused);
  EXPECT_NE(refused->code, 0);
  EXPECT_NE(refused->err.find("its IOMMU translates for it: lend it without --direct"),
            std::string::npos)
      << refused->err;
  ASSERT_OK(lender().run("pcilend remove " + address));

  const std::string device = "/sys/bus/pci/devices/" + address;
  const auto set_type = [&](const std::string& type) {
    return lender().run(
        fmt::format("echo {1} >{0}/driver/unbind && "
                    "echo {2} >{0}/iommu_group/type && "
                    "echo {1} >/sys/bus/pci/drivers/nvme/bind",
                    device, address, type));
  };
  ASSERT_OK(set_type("identity"));
  EXPECT_OK(job().lend("--direct"));
  if (!job().id().empty()) {
    EXPECT_OK(job().see_available());
    expect_direct(job());
    expect_carries(job(), address);
    expect_isolated_after(address);
  }
  EXPECT_OK(job().clean_up());
  EXPECT_OK(job().lender_disk());
  EXPECT_OK(set_type("DMA-FQ"));
}

}  // namespace
}  // namespace pcilend::scenarios
