// SPDX-License-Identifier: GPL-2.0-or-later
// The lender's rule over its functions: taking them back, who may use them, who has changed what;
// and how that is watched.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "lab/payload.h"
#include "testing/three_hosts.h"
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Contains;
using testing::Gt;
using testing::HasSubstr;
using testing::Pair;
using testing::StartsWith;

// Lines of the host's audit since the mark, without their time.
std::vector<std::string> audit_of(const lab::Host& host) {
  static constexpr std::string_view kWord = "pcilend: audit: ";
  std::vector<std::string> lines;
  const std::string log = host.log();
  for (size_t at = log.find(kWord); at != std::string::npos; at = log.find(kWord, at)) {
    at += kWord.size();
    std::string line = log.substr(at, log.find('\n', at) - at);
    while (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(std::move(line));
  }
  return lines;
}

size_t count(const std::vector<std::string>& lines, const std::string& line) {
  return static_cast<size_t>(std::count(lines.begin(), lines.end(), line));
}

// Samples in Prometheus' text format of families that are ours: by name and labels, these in order.
std::map<std::string, double> our_samples(const std::string& text) {
  static const std::regex kSample(R"re((pcilend_\w+)(\{.*\})? (\S+))re");
  static const std::regex kLabel(R"re((\w+)="(?:[^"\\]|\\.)*")re");
  std::map<std::string, double> samples;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch sample;
    if (!std::regex_match(line, sample, kSample)) continue;
    const std::string labels = sample[2];
    std::set<std::string> sorted;
    for (std::sregex_iterator one(labels.begin(), labels.end(), kLabel), end; one != end; ++one)
      sorted.insert(one->str());
    samples[fmt::format("{}{{{}}}", sample[1].str(), fmt::join(sorted, ","))] =
        std::stod(sample[3]);
  }
  return samples;
}

/*
 *   host1 (lender)                  host2 (borrower)
 *   unavailable --force ═══════════ guest with the drive in use: it errors, the guest lives
 *   nvme driver has it again
 */
TEST_F(TwoHosts, ForcedRevocationUnderARunningGuest) {
  expect_stopped_accesses();
  ASSERT_OK(job().lend());
  ASSERT_OK(job().start_guest());
  ASSERT_OK(job().await_guest_disk());
  auto load = job().guest().start(
      "while dd if=/dev/zero of=/dev/nvme0n1 bs=16k count=4 oflag=direct; do :; done");
  ASSERT_OK(load);
  const auto address = lender().address(0);
  ASSERT_OK(address);

  ASSERT_OK(lender().run("pcilend unavailable --force " + *address));
  const auto function = job().function_on(lender());
  ASSERT_OK(function);
  EXPECT_EQ(function->at("state"), "added");
  EXPECT_EQ(function->at("driver"), "nvme") << "when it answers, its driver has it";
  ASSERT_OK(job().await_state(borrower(), "added"));
  EXPECT_OK(job().guest().run("true"));  // it lives
  const auto again = borrower().exec("pcilend borrow --frontend vfio " + job().id());
  ASSERT_OK(again);
  EXPECT_NE(again->code, 0) << "nobody gets it back by asking";

  const auto audit = audit_of(lender());
  EXPECT_EQ(count(audit, "uid=0 action=unavailable function=" + job().id() + " result=0"), 1u);
  ASSERT_OK(job().guest().destroy());
}

/*
 *   host1 (lender)                  host2 (borrower)
 *   unavailable --grace 90 ───────> guest is asked, and lets go of the drive
 *   nvme driver has it again        guest goes on without it
 */
TEST_F(TwoHosts, AGuestThatIsAskedLetsGo) {
  ASSERT_OK(job().lend());
  ASSERT_OK(job().start_guest());
  ASSERT_OK(job().await_guest_disk());
  const auto address = lender().address(0);
  ASSERT_OK(address);

  const auto start = std::chrono::steady_clock::now();
  ASSERT_OK(lender().run("pcilend unavailable --grace 90 " + *address));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 90s) << "returned, not taken";
  ASSERT_OK(job().await_state(lender(), "added"));
  ASSERT_OK(lender().until("pcilend list --json", [](const lab::Output& o) {
    return o.out.find("\"nvme\"") != std::string::npos;
  }));
  EXPECT_OK(job().guest().run("until ! [ -b /dev/nvme0n1 ]; do sleep 0.1; done"));
  const auto state = job().guest().state();
  ASSERT_OK(state);
  EXPECT_EQ(*state, "running");

  const auto audit = audit_of(lender());
  EXPECT_EQ(count(audit, "uid=0 action=recall function=" + job().id() + " result=0"), 1u);
  EXPECT_EQ(count(audit, "node=8 action=return function=" + job().id() + " result=0"), 1u);
  ASSERT_OK(job().guest().destroy());
}

// In a guest, takes the drive from its driver. Then, until the drive is gone, writes to a doorbell
// what no status looks like (the first page of them: NVMe 2.0, 3.1.3), and notes each new value of
// the status (CSTS).
constexpr const char* kWriteDoorbellReadStatus = R"(setsid sh -c '
cd $(readlink -f /sys/class/nvme/nvme0/device)
bar=$(head -n 1 resource)
bar=${bar%% *}
echo ${PWD##*/} >driver/unbind && echo 1 >enable || exit
while [ -e enable ]; do
  busybox devmem $(printf 0x%x $((bar + 0x101c))) 32 0xa5
  status=$(busybox devmem $(printf 0x%x $((bar + 0x1c))))
  [ "$status" = "$last" ] || echo $status
  last=$status
done
echo gone' >/tmp/status 2>&1 &
until grep -q 0x /tmp/status; do sleep 0.1; done)";

/*
 *   host1 (lender)                  host2 (borrower)
 *   unavailable --grace 3 ────────> guest is paused: it can't let go
 *   taken when the time is over     guest lives on, without the drive: its registers are all-ones,
 *                                   whatever the guest writes to them
 */
TEST_F(TwoHosts, WhatIsNotReturnedInTimeIsTaken) {
  expect_stopped_accesses();
  ASSERT_OK(job().lend());
  ASSERT_OK(job().start_guest());
  ASSERT_OK(job().await_guest_disk());
  ASSERT_OK(job().guest().run(kWriteDoorbellReadStatus));
  ASSERT_OK(borrower().run("virsh suspend guest"));
  ASSERT_OK(lender().run("pcilend unavailable --grace 3 " + *lender().address(0)));
  ASSERT_OK(job().await_state(lender(), "added"));
  ASSERT_OK(job().await_state(borrower(), "added"));
  ASSERT_OK(borrower().run("virsh resume guest"));
  EXPECT_OK(job().guest().run("true"));
  const auto status =
      job().guest().run("until grep -q gone /tmp/status; do sleep 0.1; done; cat /tmp/status");
  ASSERT_OK(status);
  // 0xFFFFFFFF, unless the guest removes the drive before it reads that.
  EXPECT_EQ(status->find("0x000000A5"), std::string::npos) << *status;
  ASSERT_OK(job().guest().destroy());
}

/*
 *   host1 (lender)                  host2 (borrower)
 *   nvme: has no way to be reset ── borrows and returns it
 *   quarantined, until it has one
 */
TEST_F(TwoHosts, QuarantineAndTheWayOut) {
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  const auto address = lender().address(0);
  ASSERT_OK(address);
  const std::string methods = "/sys/bus/pci/devices/" + *address + "/reset_method";

  ASSERT_OK(borrower().run("pcilend borrow --frontend vfio " + job().id()));
  ASSERT_OK(lender().run("echo >" + methods));
  ASSERT_OK(borrower().run("pcilend return " + job().id()));
  ASSERT_OK(job().await_state(lender(), "quarantined"));
  const auto function = job().function_on(lender());
  ASSERT_OK(function);
  EXPECT_NE(function->at("reason").get<std::string>().find("reset failed"), std::string::npos);
  ASSERT_OK(job().await_state(borrower(), "quarantined"));
  const auto borrow = borrower().exec("pcilend borrow --frontend vfio " + job().id());
  ASSERT_OK(borrow);
  EXPECT_EQ(borrow->code, static_cast<int>(ErrorClass::State)) << borrow->err;

  const auto early = lender().exec("pcilend release-quarantine " + *address);
  ASSERT_OK(early);
  EXPECT_NE(early->code, 0) << "it can't be reset yet";
  ASSERT_OK(job().await_state(lender(), "quarantined"));
  ASSERT_OK(lender().run("echo default >" + methods));
  ASSERT_OK(lender().run("pcilend release-quarantine " + *address));
  ASSERT_OK(job().await_state(borrower(), "available"));
  ASSERT_OK(borrower().run("pcilend borrow --frontend vfio " + job().id()));
  ASSERT_OK(borrower().run("pcilend return " + job().id()));
}

/*
 *   host1 (lender)                  host2 (borrower)
 *   what is changed, by whom, and what is refused: one line each
 */
TEST_F(TwoHosts, TheAuditTellsWhoDidWhat) {
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  const std::string function = " function=" + job().id();
  ASSERT_OK(borrower().run("pcilend borrow --frontend vfio " + job().id()));
  const auto busy = lender().exec("pcilend unavailable " + *lender().address(0));
  ASSERT_OK(busy);
  EXPECT_NE(busy->code, 0);
  ASSERT_OK(borrower().run("pcilend return " + job().id()));
  const auto stranger = lender().exec("setpriv --reuid 65534 --clear-groups pcilend disconnect 8");
  ASSERT_OK(stranger);
  EXPECT_EQ(stranger->code, static_cast<int>(ErrorClass::Permission)) << stranger->err;
  EXPECT_NE(stranger->err.find("CAP_SYS_ADMIN"), std::string::npos) << stranger->err;
  EXPECT_OK(lender().run("setpriv --reuid 65534 --clear-groups pcilend list"));

  const auto lent = audit_of(lender());
  EXPECT_EQ(count(lent, "uid=0 action=add" + function + " result=0"), 1u);
  EXPECT_EQ(count(lent, "uid=0 action=available" + function + " result=0"), 1u);
  EXPECT_EQ(count(lent, "node=8 action=borrow" + function + " result=0"), 1u);
  EXPECT_EQ(count(lent, "uid=0 action=unavailable" + function + " result=-16"), 1u);
  EXPECT_EQ(count(lent, "node=8 action=return" + function + " result=0"), 1u);
  EXPECT_EQ(count(lent, "uid=65534 action=disconnect target=8 result=-1"), 1u);
  const auto borrowed = audit_of(borrower());
  EXPECT_EQ(count(borrowed, "uid=0 action=borrow" + function + " result=0"), 1u);
  EXPECT_EQ(count(borrowed, "uid=0 action=return" + function + " result=0"), 1u);
}

// Writes what `host` counts as docs/operating.md says, for a timer, and has Debian's node exporter
// read it: what it answers of it is what was written.
std::map<std::string, double> read_by_node_exporter(const lab::Host& host) {
  std::map<std::string, double> samples;
  const auto read = [&] {
    const auto artefacts = lab::Artefacts::find(lab::Options().kernel);
    ASSERT_OK(artefacts);
    const auto exporter = artefacts->bin.parent_path() / "node-exporter/prometheus-node-exporter";
    ASSERT_TRUE(exists(exporter)) << exporter << " is missing: run tools/test/node-exporter";
    ASSERT_OK(host.put(exporter, "/tmp/node-exporter"));
    ASSERT_OK(
        host.run("chmod 755 /tmp/node-exporter && mkdir -p /var/lib/prometheus/node-exporter"));
    ASSERT_OK(
        host.run("cd /var/lib/prometheus/node-exporter && pcilend metrics >pcilend.prom.$$ && "
                 "mv pcilend.prom.$$ pcilend.prom || rm -f pcilend.prom.$$"));
    const auto written = host.run("cat /var/lib/prometheus/node-exporter/pcilend.prom");
    ASSERT_OK(written);
    auto running = host.start("exec /tmp/node-exporter --web.listen-address=127.0.0.1:9100");
    ASSERT_OK(running);
    const auto answer = host.until("busybox wget -q -O - http://127.0.0.1:9100/metrics");
    ASSERT_OK(answer);
    EXPECT_THAT(answer->out, HasSubstr("\nnode_textfile_scrape_error 0\n"));
    samples = our_samples(answer->out);
    EXPECT_EQ(samples, our_samples(*written));
    running->interrupt();
    ASSERT_OK(running->wait());
    ASSERT_OK(host.run("rm -r /var/lib/prometheus /tmp/node-exporter"));
  };
  SCOPED_TRACE(host.name());
  read();
  return samples;
}

/*
 *   host1 (lender)                  host2 (borrower)
 *   a drive ═══════════════════════ a guest has it
 *   pcilend metrics > a file        the same
 *   prometheus-node-exporter        the same: all that was written comes over HTTP
 */
TEST_F(TwoHosts, PrometheusNodeExporterReadsTheMetrics) {
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  ASSERT_OK(job().start_guest());
  const auto owner = borrower().run("virsh domuuid guest | tr -d '\\n'");
  ASSERT_OK(owner);
  const auto lent = read_by_node_exporter(lender());
  const auto borrowed = read_by_node_exporter(borrower());

  const auto of_function = [&](const std::string& family, const std::string& label, auto value) {
    const std::string function = fmt::format("function=\"{}\"", job().id());
    return Contains(
        Pair(AllOf(StartsWith(family + "{"), HasSubstr(function), HasSubstr(label)), value));
  };
  for (const auto& samples : {lent, borrowed}) {
    EXPECT_THAT(samples, of_function("pcilend_function_state", "state=\"borrowed\"", 1));
    EXPECT_THAT(samples, of_function("pcilend_function_quarantined", "", 0));
    EXPECT_THAT(samples, of_function("pcilend_function_lease_info", "borrower=\"8\"", 1));
  }
  EXPECT_THAT(lent, Contains(Pair("pcilend_leases{role=\"lender\"}", 1)));
  EXPECT_THAT(lent, of_function("pcilend_function_lease_left_seconds", "", Gt(0)));
  EXPECT_THAT(borrowed, Contains(Pair("pcilend_leases{role=\"borrower\"}", 1)));
  EXPECT_THAT(borrowed, of_function("pcilend_function_lease_info", "owner=\"" + *owner + "\"", 1));
  EXPECT_THAT(borrowed, of_function("pcilend_function_mapped_bytes", "", Gt(0)));
}

/*
 *   host1 (lender)                  host2 (borrower)
 *   disconnect 8: refused ═════════ has a drive, and asks for its bus mastering all the time
 *   meanwhile resets another one
 */
TEST_F(TwoHosts, ADisconnectThatIsRefusedChangesNothing) {
  // Disconnecting looks at this one first, and waits while it is reset.
  const auto other = lender().address("msi");
  ASSERT_OK(other);
  ASSERT_OK(lender().run("pcilend add " + *other));
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  ASSERT_OK(borrower().run("pcilend borrow --frontend vfio " + job().id()));
  const auto function = job().function_on(borrower());
  ASSERT_OK(function);
  // Many times by each program that is started: the time in which it could be refused is short.
  std::string commands;
  for (int i = 0; i < 100; ++i) commands += " COMMAND=2 COMMAND=6";
  auto asking =
      borrower().start(fmt::format("until [ -e /tmp/enough ]; do setpci -s {}{}; done",
                                   function->at("virtual_bdf").get<std::string>(), commands));
  ASSERT_OK(asking);
  const auto refused = lender().run(fmt::format(
      "(for i in 1 2 3 4; do pcilend available {0}; pcilend unavailable {0}; done; touch "
      "/tmp/over) "
      "& until [ -e /tmp/over ]; do pcilend disconnect {1} 2>&1 && echo gone; done; wait; "
      "rm /tmp/over",
      *other, borrower().node()));
  ASSERT_OK(borrower().run("touch /tmp/enough"));
  ASSERT_OK(asking->wait());
  ASSERT_OK(borrower().run("rm /tmp/enough"));
  ASSERT_OK(refused);
  EXPECT_NE(refused->find("it borrows functions of this host"), std::string::npos) << *refused;
  EXPECT_EQ(refused->find("gone"), std::string::npos) << *refused;
  EXPECT_EQ(borrower().log().find("did not take a config write"), std::string::npos);
  EXPECT_OK(borrower().run("pcilend return " + job().id()));
  EXPECT_OK(lender().run("pcilend remove " + *other));
}

/*
 *              host1 (lender, node 4): nvme
 *              /                          \
 *   host2 (node 8)                      host3 (node 12)
 */
class ThreeHosts : public OnThreeHosts {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(OnThreeHosts::SetUp());
    const auto address = host(1).address("nvme");
    ASSERT_OK(address);
    address_ = *address;
    job_.emplace(host(1), host(2), address_, "guest");
    ASSERT_OK(job_->lend());
    ASSERT_OK(job_->await_state(host(2), "available"));
    ASSERT_OK(job_->await_state(host(3), "available"));
  }
  void TearDown() override {
    if (job_) EXPECT_OK(job_->clean_up());
    OnThreeHosts::TearDown();
  }

  [[nodiscard]] const std::string& id() const { return job_->id(); }
  // The function appears to the host, or it does not.
  Result<> await_seen(int number, bool seen) const {
    const auto listed = host(number).until("pcilend list --json", [&](const lab::Output& o) {
      return (o.out.find("\"" + id() + "\"") != std::string::npos) == seen;
    });
    if (!listed) return tl::unexpected(listed.error());
    return {};
  }

  std::optional<MainJob> job_;
  std::string address_;
};

/*
 *   host1: allow 8                  host2 sees and borrows it, host3 knows of nothing
 *   host1: allow 12, allow none     refused while host2 has it
 *   host1: allow all                host3 sees it too
 */
TEST_F(ThreeHosts, WhoIsNotAllowedSeesNothing) {
  ASSERT_OK(host(1).run("pcilend allow " + address_ + " 8"));
  ASSERT_OK(await_seen(3, false));
  ASSERT_OK(await_seen(2, true));
  expect_refused(host(3), "pcilend borrow --frontend vfio " + id(), id());
  // Not after another handshake either, which tells everything anew.
  ASSERT_OK(lab_->fabric().link_down(1, 3));
  ASSERT_OK(lab_->fabric().link_up(1, 3));
  ASSERT_OK(host(3).until("pcilend link --json", [](const lab::Output& o) {
    const auto json = nlohmann::json::parse(o.out, nullptr, false);
    if (!json.is_object()) return false;
    const auto& links = json.at("links");
    return std::all_of(links.begin(), links.end(),
                       [](const auto& link) { return link.at("state") == "up"; });
  }));
  ASSERT_OK(await_seen(3, false));

  ASSERT_OK(host(2).run("pcilend borrow --frontend vfio " + id()));
  expect_refused(host(1), "pcilend allow " + address_ + " 12", "node 8");
  expect_refused(host(1), "pcilend allow " + address_ + " none", "node 8");
  ASSERT_OK(host(2).run("pcilend return " + id()));
  ASSERT_OK(host(1).run("pcilend allow " + address_ + " none"));
  ASSERT_OK(await_seen(2, false));
  ASSERT_OK(host(1).run("pcilend allow " + address_ + " all"));
  ASSERT_OK(await_seen(2, true));
  ASSERT_OK(await_seen(3, true));
}

/*
 *   host1: reserve for node 12      host2 is refused, host3 borrows
 *   host2: reserve for itself       host3 is refused, until the time is over
 *   host1: reserve for a domain     who names it borrows, on any node
 */
TEST_F(ThreeHosts, OnlyWhoItIsReservedForBorrows) {
  const std::string domain = "6f0d2c9e-52c1-4f0b-9d5e-0c6d0b7a1e11";
  ASSERT_OK(host(1).run("pcilend reserve " + id() + " --for 12 --ttl 3600"));
  expect_refused(host(2), "pcilend borrow --frontend vfio " + id(), "reserved");
  expect_refused(host(2), "pcilend reserve " + id() + " --for 8 --ttl 60", "reserved");
  ASSERT_OK(host(3).run("pcilend borrow --frontend vfio " + id()));
  ASSERT_OK(host(3).run("pcilend return " + id()));
  ASSERT_OK(host(1).run("pcilend reserve " + id() + " --cancel"));

  ASSERT_OK(host(2).run("pcilend reserve " + id() + " --for 8 --ttl 4"));
  expect_refused(host(3), "pcilend borrow --frontend vfio " + id(), "reserved");
  ASSERT_OK(host(3).until("pcilend borrow --frontend vfio " + id()));
  ASSERT_OK(host(3).run("pcilend return " + id()));

  const std::string nobody = "setpriv --reuid 65534 --clear-groups ";
  std::vector<lab::Running> monitors;
  const auto await_word = [&](size_t monitor, const std::string& word) {
    return lab::eventually("it is told of: " + word, lab::kPatience, [&] {
      return monitors[monitor].output_so_far().find(word) != std::string::npos;
    });
  };
  for (const int index : {1, 2}) {
    auto monitor = host(index).start("exec " + nobody + "pcilend monitor --json --timeout 120");
    ASSERT_OK(monitor);
    monitors.push_back(std::move(*monitor));
    ASSERT_OK(await_word(monitors.size() - 1, "available"));  // it listens
  }
  ASSERT_OK(host(1).run("pcilend reserve " + id() + " --for " + domain + " --ttl 3600"));
  expect_refused(host(2), "pcilend borrow --frontend vfio " + id(), "reserved");
  // Its name lets in who knows it, as boot ids do: they are told to administrators only.
  ASSERT_OK(host(1).run("pcilend list --json | grep -q " + domain));
  EXPECT_OK(host(1).run("! " + nobody + "pcilend list --json | grep " + domain));
  ASSERT_OK(host(1).run("pcilend link --json | grep -q '\"peer_boot_id\": \"'"));
  EXPECT_OK(host(1).run("! " + nobody + "pcilend link --json | grep '\"peer_boot_id\": \"'"));
  ASSERT_OK(host(2).run("pcilend borrow --frontend vfio " + id() + " --owner " + domain));
  ASSERT_OK(host(2).run("pcilend list --json | grep -q " + domain));
  EXPECT_OK(host(2).run("! " + nobody + "pcilend list --json | grep " + domain));
  const std::string attribute = fmt::format("cat /sys/bus/pcilend/devices/{}/owner", id());
  ASSERT_OK(host(2).run(fmt::format("{} | grep -q {}", attribute, domain)));
  EXPECT_OK(host(2).run(fmt::format("! {}{}", nobody, attribute)));
  EXPECT_OK(host(2).run(nobody + "pcilend list --json | grep '\"frontend\": \"vfio\"'"));
  for (const size_t i : {0, 1}) {
    EXPECT_OK(await_word(i, "borrowed"));
    EXPECT_EQ(monitors[i].output_so_far().find(domain), std::string::npos);
    monitors[i].interrupt();
  }
  ASSERT_OK(host(2).run("pcilend return " + id() + " --owner " + domain));
  ASSERT_OK(host(1).run("pcilend reserve " + id() + " --cancel"));

  const auto audit = audit_of(host(1));
  const std::string function = " function=" + id();
  EXPECT_EQ(count(audit, "uid=0 action=reserve" + function + " target=12 result=0"), 1u);
  EXPECT_EQ(count(audit, "node=8 action=borrow" + function + " result=-13"), 2u);
  EXPECT_EQ(count(audit, "node=8 action=reserve" + function + " target=8 result=-13"), 1u);
  EXPECT_EQ(count(audit, "node=8 action=reserve" + function + " target=8 result=0"), 1u);
}

/*
 *   host2: a guest writes, and loses its power      host3 is refused while the lease runs
 *   host1: the lease is over, the drive reset       host3's guest reads what was written
 *   host2: boots anew                               nothing is left on any of them
 */
TEST_F(ThreeHosts, AnotherHostBorrowsAfterADeath) {
  ASSERT_OK(job_->start_guest());
  ASSERT_OK(job_->await_guest_disk());
  const auto written = job_->guest().run(
      "head -c 16384 /dev/urandom >/tmp/w && "
      "dd if=/tmp/w of=/dev/nvme0n1 bs=16k oflag=direct 2>/dev/null && sha256sum </tmp/w");
  ASSERT_OK(written);
  auto load = job_->guest().start(
      "while dd if=/tmp/w of=/dev/nvme0n1 bs=16k seek=1 oflag=direct 2>/dev/null; do :; done",
      {{}, 10min});
  ASSERT_OK(load);

  ASSERT_OK(host(2).power_off());
  expect_refused(host(3), "pcilend borrow --frontend vfio " + id(), "it is borrowed");
  ASSERT_OK(job_->await_state(host(1), "available"));
  ASSERT_OK(job_->await_state(host(3), "available"));

  auto spec = host(3).guest_spec("heir", {id()});
  ASSERT_OK(spec);
  const lab::Guest heir = host(3).guest(*spec);
  ASSERT_OK(heir.define());
  ASSERT_OK(heir.start());
  ASSERT_OK(MainJob::await_disk(heir));
  const auto read =
      heir.run("dd if=/dev/nvme0n1 bs=16k count=1 iflag=direct 2>/dev/null | sha256sum");
  ASSERT_OK(read);
  EXPECT_EQ(*read, *written);
  ASSERT_OK(heir.shut_down());
  ASSERT_OK(heir.undefine());
  ASSERT_OK(job_->await_state(host(1), "available"));
  expect_nothing_mapped(host(3));
  // Host1 puts nothing where host2 had the BARs before that has booted anew (decision 0024).
  ASSERT_OK(power_on(2));
  ASSERT_OK(job_->await_state(host(2), "available"));
  expect_nothing_mapped(host(1));
}

}  // namespace
}  // namespace pcilend::scenarios
