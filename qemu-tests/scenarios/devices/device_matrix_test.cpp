// SPDX-License-Identifier: GPL-2.0-or-later
#include "scenarios/devices/device_matrix.h"

#include <cstdlib>
#include <fstream>

#include "main_job/admin_steps.h"
#include "testing/asserts.h"
#include "testing/echo_server.h"
#include "testing/suite_lab.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

/*
 *   host1 (lender)                           host2 (borrower)
 *   function ── root port ── IOMMU ── NTB ══ NTB ── virtual function ── its stock driver
 *   its stock driver again
 *
 * Each function is lent, used with data that is checked, returned, and used on the lender; or it is
 * refused, with the reason.
 */
class DeviceMatrix : public testing::TestWithParam<MatrixFunction> {
 protected:
  static void SetUpTestSuite() {
    const auto options = matrix_options_of_this_run();
    ASSERT_OK(options);
    ASSERT_OK(start_lab(*options, lab_));
    const auto release = lender().run("uname -r | cut -d. -f1,2 | tr -d '\\n'");
    ASSERT_OK(release);
    kernel_ = *release;
    auto server = start_echo_server(lender());
    ASSERT_OK(server);
    server_.emplace(std::move(*server));
    ASSERT_OK(lender().run(fmt::format("pcilend connect {}", borrower().node())));
  }

  static void TearDownTestSuite() {
    const std::string table = table_of(rows_);
    fmt::print(stderr, "{}", table);
    if (const char* file = std::getenv("PCILEND_DEVICES_TABLE")) {
      std::ofstream(file) << table;
    }
    server_.reset();
    EXPECT_OK(end_lab(lab_));
  }

  void SetUp() override {
    ASSERT_TRUE(lab_) << "the lab did not start";
    start_ = std::chrono::steady_clock::now();
    ASSERT_OK(lender().mark_log());
    ASSERT_OK(borrower().mark_log());
    const auto address = lender().address(GetParam().name);
    ASSERT_OK(address);
    address_ = *address;
    row_ = {GetParam().name, kernel_, {}, "fails", "the scenario's output says why"};
    const auto pci = lender().run("lspci -v -s " + address_);
    ASSERT_OK(pci);
    row_.traits = parse_traits(*pci);
  }

  void TearDown() override {
    if (!lab_) return;
    if (!id_.empty()) {
      EXPECT_OK(borrower().exec("pcilend return --force " + id_));
      EXPECT_OK(lender().exec("pcilend unavailable --force " + address_));
      EXPECT_OK(lender().exec("pcilend remove " + address_));
    }
    EXPECT_OK(lender().check_log());
    EXPECT_OK(borrower().check_log({GetParam().log.begin(), GetParam().log.end()}));
    if (HasFailure()) row_.result = "fails";
    rows_.push_back(row_);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start_;
    fmt::print(stderr, "-- {} took {:.1f} s\n", GetParam().name, took.count());
  }

  [[nodiscard]] static lab::Host& lender() { return lab_->host(1); }
  [[nodiscard]] static lab::Host& borrower() { return lab_->host(2); }

  void expect_refusal() {
    ASSERT_OK(lender().run("pcilend add " + address_));
    const auto offered = lender().exec("pcilend available " + address_);
    EXPECT_OK(lender().run("pcilend remove " + address_));
    ASSERT_OK(offered);
    EXPECT_NE(offered->code, 0);
    const size_t reason = offered->err.find(GetParam().refusal);
    ASSERT_NE(reason, std::string::npos) << offered->err;
    row_.result = "refused";
    row_.why = offered->err.substr(reason, offered->err.find('\n', reason) - reason);
  }

  Result<> lend() {
    const auto offered = offer(lender(), address_);
    if (!offered) return tl::unexpected(offered.error());
    id_ = offered->at("id");
    return await_state(borrower(), id_, "available");
  }

  // Its address on the borrower.
  Result<std::string> borrow() {
    const bool wait = !GetParam().driver.empty();
    const auto answer =
        borrower().json(fmt::format("pcilend borrow {} --json {}", wait ? "--wait" : "", id_));
    if (!answer) return tl::unexpected(answer.error());
    const auto& function = answer->at("functions").at(0);
    if (wait && function.at("driver") != GetParam().driver)
      return fail(ErrorClass::Failure, "bound to {}", function.at("driver").dump());
    return function.at("virtual_bdf").get<std::string>();
  }

  // What must be the same on both hosts.
  static Result<std::string> use(const lab::Host& host, const std::string& address, bool write) {
    switch (GetParam().workload) {
      case Workload::Disk:
        return use_disk(host, address, write);
      case Workload::Network:
        return use_network(host, address);
      case Workload::Registers:
        return use_registers(host, address);
      case Workload::Watchdog:
        return use_watchdogs(host);
      case Workload::Binding:
        return std::string();
    }
    return fail(ErrorClass::Failure, "no such workload");
  }

  static Result<std::string> use_disk(const lab::Host& host, const std::string& address,
                                      bool write) {
    const auto disk = await_disk(host, address);
    if (!disk) return disk;
    if (write)
      PCILEND_TRY(
          host.run(fmt::format("head -c 64K /dev/urandom >/tmp/data && "
                               "dd if=/tmp/data of={0} bs=32k oflag=direct 2>/dev/null && "
                               "dd if={0} bs=32k count=2 iflag=direct 2>/dev/null | "
                               "cmp - /tmp/data",
                               *disk)));
    return host.run(
        fmt::format("dd if={} bs=32k count=2 iflag=direct 2>/dev/null | sha256sum", *disk));
  }

  // In a network namespace of its own, so that nothing takes a shorter way to the server.
  static Result<std::string> use_network(const lab::Host& host, const std::string& address) {
    const auto name = host.until(fmt::format(
        "find /sys/bus/pci/devices/{}/ -path '*/net/*' -prune -printf '%f\\n' | grep .", address));
    if (!name) return tl::unexpected(name.error());
    PCILEND_TRY(
        host.run(fmt::format("ip netns add matrix && ip link set {} netns matrix", name->text())));
    const auto sent = send_data(host, name->text());
    // Where the function itself goes away, its namespace must not hold it.
    PCILEND_TRY(host.run(fmt::format(
        "ip netns exec matrix ip link set {} netns 1 && ip netns delete matrix", name->text())));
    return sent;
  }

  static Result<std::string> send_data(const lab::Host& host, const std::string& name) {
    const std::string inside = "ip netns exec matrix ";
    PCILEND_TRY(
        host.run(fmt::format("{0} ip address add 10.9.0.2/24 dev {1} && "
                             "{0} ip link set {1} up",
                             inside, name)));
    PCILEND_TRY(host.until(fmt::format("{} busybox ping -c 1 -W 1 {}", inside, kEchoServer)));
    PCILEND_TRY(host.run(fmt::format("{} sh -c '{}'", inside, send_around(64))));
    return std::string();
  }

  // QEMU's docs/specs/edu.rst: identification, liveness check, factorial.
  static Result<std::string> use_registers(const lab::Host& host, const std::string& address) {
    return host.run(fmt::format(
        "cd /sys/bus/pci/devices/{} && echo 1 >enable && bar=$(head -n 1 resource) && bar=${{bar%% "
        "*}} && at() {{ printf '0x%x' $((bar + $1)); }} && devmem=\"busybox devmem\" && "
        "$devmem $(at 0) && $devmem $(at 4) 32 0x12345678 && $devmem $(at 4) && "
        "$devmem $(at 8) 32 10 && while [ $(($($devmem $(at 32)) & 1)) = 1 ]; do :; done && "
        "$devmem $(at 8); code=$?; echo 0 >enable; exit $code",
        address));
  }

  // Each watchdog of the host, as the driver doesn't say which is whose, is started, fed, and
  // stopped. One that still ran would reset the lender: it is in that machine.
  static Result<std::string> use_watchdogs(const lab::Host& host) {
    return host.run(
        "for dog in /sys/class/watchdog/watchdog*; do exec 3>/dev/$(basename $dog) && echo >&3 && "
        "cat $dog/identity $dog/state $dog/timeout && printf V >&3 && exec 3>&- && "
        "cat $dog/state || exit 1; done | sort -u");
  }

  // Its interface goes down: its driver puts it to sleep, and wakes it when it is used again. It is
  // allowed to sleep before that: igb looks for a link once, when it may sleep and is down, and
  // QEMU's link is back half a second after it went down.
  static Result<> sleep_and_wake(const lab::Host& host, const std::string& address) {
    const std::string device = "/sys/bus/pci/devices/" + address;
    PCILEND_TRY(host.run(
        fmt::format("name=$(ls {0}/net) && ip link set $name up && echo auto >{0}/power/control && "
                    "ip link set $name down",
                    device)));
    PCILEND_TRY(host.until(fmt::format("grep -x D3hot {}/power_state", device)));
    // In its configuration space too: PCI_PM_CTRL_STATE_MASK.
    PCILEND_TRY(host.run(fmt::format("[ $((0x$(setpci -s {} CAP_PM+4.w) & 3)) = 3 ]", address)));
    PCILEND_TRY(
        host.run(fmt::format("echo on >{0}/power/control && grep -x D0 {0}/power_state", device)));
    return {};
  }

  void expect_lent() {
    ASSERT_OK(lend());
    const auto borrowed = borrow();
    ASSERT_OK(borrowed);
    const auto there = use(borrower(), *borrowed, true);
    ASSERT_OK(there);
    if (GetParam().sleeps) {
      ASSERT_OK(sleep_and_wake(borrower(), *borrowed));
      ASSERT_OK(use(borrower(), *borrowed, true));
    }
    ASSERT_OK(borrower().run("pcilend return " + id_));
    EXPECT_OK(borrower().run("! ls /sys/bus/pci/devices/" + *borrowed));
    ASSERT_OK(lender().run("pcilend unavailable " + address_));
    if (!GetParam().driver.empty()) {
      const auto bound = lender().run(fmt::format(
          "basename \"$(readlink /sys/bus/pci/devices/{}/driver)\" | tr -d '\\n'", address_));
      ASSERT_OK(bound);
      EXPECT_EQ(*bound, GetParam().driver);
    }
    const auto here = use(lender(), address_, false);
    ASSERT_OK(here);
    EXPECT_EQ(*here, *there);
    row_.result = "works";
    row_.why = what_was_done();
  }

  static std::string what_was_done() {
    switch (GetParam().workload) {
      case Workload::Disk:
        return "data written and read, read again on the lender";
      case Workload::Network:
        return fmt::format(
            "data sent to the lender and back{}",
            GetParam().sleeps ? ", before and after its driver put it to sleep (D3hot)" : "");
      case Workload::Registers:
        return "registers written and read";
      case Workload::Watchdog:
        return "started, fed and stopped";
      case Workload::Binding:
        return "its driver binds";
    }
    return "";
  }

  static std::optional<lab::Lab> lab_;
  static std::optional<lab::Running> server_;
  static std::vector<MatrixRow> rows_;
  static std::string kernel_;

  std::string address_;  // on the lender
  std::string id_;
  MatrixRow row_;
  std::chrono::steady_clock::time_point start_;
};

std::optional<lab::Lab> DeviceMatrix::lab_;
std::optional<lab::Running> DeviceMatrix::server_;
std::vector<MatrixRow> DeviceMatrix::rows_;
std::string DeviceMatrix::kernel_;

TEST_P(DeviceMatrix, IsLentOrRefused) {
  if (GetParam().refusal.empty())
    expect_lent();
  else
    expect_refusal();
}

INSTANTIATE_TEST_SUITE_P(Standard, DeviceMatrix, testing::ValuesIn(matrix_functions()),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace pcilend::scenarios
