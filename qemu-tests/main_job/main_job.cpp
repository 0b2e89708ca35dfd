// SPDX-License-Identifier: GPL-2.0-or-later
#include "main_job/main_job.h"

#include <charconv>

#include "lab/lab.h"
#include "main_job/admin_steps.h"

namespace pcilend::scenarios {

using namespace std::chrono_literals;
using lab::Host;

namespace {

constexpr const char* kLenderMount = "/mnt";
constexpr const char* kGuestMount = "/mnt";

Result<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data())
    return fail(ErrorClass::Failure, "'{}' is not a number", text);
  return value;
}

}  // namespace

MainJob::MainJob(Host& lender, Host& borrower, std::string address, std::string guest_name)
    : lender_(lender),
      borrower_(borrower),
      address_(std::move(address)),
      guest_name_(std::move(guest_name)) {}

Result<std::string> MainJob::lender_disk() const {
  return scenarios::await_disk(lender_, address_);
}

Result<> MainJob::fill_drive() {
  const auto disk = lender_disk();
  if (!disk) return tl::unexpected(disk.error());
  PCILEND_TRY(lender_.run(
      fmt::format("mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 {}", *disk)));
  PCILEND_TRY(lender_.run(fmt::format("mount {} {}", *disk, kLenderMount)));
  PCILEND_TRY(lender_.run(
      fmt::format("cd {} && for i in $(seq {}); do head -c 1M /dev/urandom >file$i; done && "
                  "sha256sum file* >SUMS && sync",
                  kLenderMount, kFiles)));
  PCILEND_TRY(lender_.run(fmt::format("umount {}", kLenderMount)));
  return {};
}

Result<> MainJob::lend(const std::string& options) {
  PCILEND_TRY(lender_.run(fmt::format("pcilend connect {}", borrower_.node())));
  const auto offered = offer(lender_, address_, options);
  if (!offered) return tl::unexpected(offered.error());
  id_ = offered->at("id").get<std::string>();
  return {};
}

Result<nlohmann::json> MainJob::function_on(const Host& host) const {
  return scenarios::function_on(host, id_);
}

Result<> MainJob::await_state(const Host& host, const std::string& state,
                              std::chrono::milliseconds within) const {
  return scenarios::await_state(host, id_, state, within);
}

Result<> MainJob::see_available() {
  PCILEND_TRY(await_state(borrower_, "available"));
  PCILEND_TRY(borrower_.run("pcilend list"));
  return {};
}

Result<BorrowedDrive> MainJob::borrow() const {
  const auto answer = borrower_.json("pcilend borrow --wait --json " + id_);
  if (!answer) return tl::unexpected(answer.error());
  const auto& disk = answer->at("disks").at(0);
  return BorrowedDrive{answer->at("functions").at(0).at("virtual_bdf"),
                       "/dev/" + disk.at("name").get<std::string>(), disk.at("controller")};
}

Result<> MainJob::borrow_and_use() const {
  const auto drive = borrow();
  if (!drive) return tl::unexpected(drive.error());
  PCILEND_TRY(
      borrower_.run(fmt::format("dd if={} of=/dev/null bs=16k count=2 iflag=direct", drive->disk)));
  PCILEND_TRY(borrower_.run("pcilend return " + id_));
  return {};
}

Result<> MainJob::start_guest(lab::Hostdev kind) {
  auto spec = borrower_.guest_spec(guest_name_, {id_}, kind);
  if (!spec) return tl::unexpected(spec.error());
  guest_.emplace(borrower_.guest(*spec));
  PCILEND_TRY(guest_->define());
  return guest_->start();
}

Result<> MainJob::await_guest_disk() {
  return await_disk(*guest_);
}

Result<> MainJob::await_disk(const lab::Guest& guest) {
  PCILEND_TRY(guest.await_answer());
  const auto disk = guest.run(
      "i=0; until [ -b /dev/nvme0n1 ]; do i=$((i+1)); [ $i -lt 480 ] || exit 1; sleep 0.5; done",
      {{}, 5min});
  if (!disk) return tl::unexpected(Error(disk.error()).in("no /dev/nvme0n1 in the guest"));
  return {};
}

Result<std::string> MainJob::boot_id(const lab::Guest& guest) {
  return guest.run("cat /proc/sys/kernel/random/boot_id");
}

Result<> MainJob::await_next_boot(const lab::Guest& guest, const std::string& boot_id) {
  return lab::eventually("the guest boots anew", 5min, [&] {
    // What is asked while it goes down is never answered.
    const auto now = guest.exec("cat /proc/sys/kernel/random/boot_id", {{}, 5s});
    return now && now->code == 0 && now->out != boot_id;
  });
}

Result<> MainJob::read_in_guest() {
  PCILEND_TRY(await_guest_disk());
  PCILEND_TRY(
      guest_->run(fmt::format("mkdir -p {0} && mount -t ext4 /dev/nvme0n1 {0}", kGuestMount)));
  const auto sums = guest_->exec(fmt::format("cd {} && sha256sum -c SUMS", kGuestMount));
  if (!sums) return tl::unexpected(sums.error());
  size_t good = 0;
  for (size_t at = 0; (at = sums->out.find(": OK", at)) != std::string::npos; at += 4) ++good;
  if (sums->code != 0 || good != kFiles)
    return fail(ErrorClass::Failure, "{} of {} files are intact in the guest:\n{}{}", good, kFiles,
                sums->out, sums->err);
  return {};
}

Result<> MainJob::write_in_guest() {
  // Small commands: while QEMU's drive reads guest memory across the NTB, its host stands still.
  PCILEND_TRY(guest_->run(
      fmt::format("cd {} && for i in $(seq {}); do "
                  "dd if=/dev/urandom of=guest$i bs=16k count={} oflag=direct 2>/dev/null; done && "
                  "sha256sum guest* >GUEST-SUMS && sync",
                  kGuestMount, kGuestFiles, kGuestBlocks)));
  return {};
}

Result<> MainJob::shut_down_guest() {
  return guest_->press_power_button();
}

Result<> MainJob::take_back() {
  PCILEND_TRY(await_state(borrower_, "available"));
  PCILEND_TRY(lender_.run(fmt::format("pcilend unavailable {}", address_)));
  const auto disk = lender_disk();
  if (!disk) return tl::unexpected(disk.error());
  PCILEND_TRY(lender_.run(fmt::format("mount -o ro {} {}", *disk, kLenderMount)));
  const auto sums =
      lender_.exec(fmt::format("cd {} && sha256sum -c SUMS GUEST-SUMS", kLenderMount));
  PCILEND_TRY(lender_.run(fmt::format("umount {}", kLenderMount)));
  if (!sums) return tl::unexpected(sums.error());
  if (sums->code != 0)
    return fail(ErrorClass::Failure, "files are damaged on the lender:\n{}{}", sums->out,
                sums->err);
  return {};
}

Result<> MainJob::clean_up() {
  if (guest_) {
    const auto state = guest_->state();
    if (state && *state == "running") PCILEND_TRY(guest_->destroy());
    if (state) PCILEND_TRY(guest_->undefine());
    guest_.reset();
  }
  PCILEND_TRY(lender_.exec(fmt::format("mountpoint -q {0} && umount {0}", kLenderMount)));
  if (!id_.empty()) {
    const auto borrowed = function_on(borrower_);
    // What a guest had, the hook has returned.
    if (borrowed && (borrowed->at("frontend") == "shadow" || borrowed->at("owner") == "user root"))
      PCILEND_TRY(borrower_.exec("pcilend return --force " + id_));
    const auto function = function_on(lender_);
    if (function && function->at("state") != "added" && function->at("state") != "local") {
      PCILEND_TRY(await_state(lender_, "available"));
      PCILEND_TRY(lender_.run(fmt::format("pcilend unavailable {}", address_)));
    }
    if (function) PCILEND_TRY(lender_.run(fmt::format("pcilend remove {}", address_)));
    id_.clear();
  }
  return {};
}

Result<lab::Guest> MainJob::another_guest(const std::string& name) const {
  auto spec = borrower_.guest_spec(name, {id_});
  if (!spec) return tl::unexpected(spec.error());
  return borrower_.guest(*spec);
}

Result<LenderEffort> MainJob::lender_effort() const {
  LenderEffort effort;
  const auto links = lender_.json("pcilend link --json");
  if (!links) return tl::unexpected(links.error());
  for (const auto& link : links->at("links"))
    effort.messages +=
        link.at("tx_messages").get<uint64_t>() + link.at("rx_messages").get<uint64_t>();
  const auto interrupts = lender_.run(
      fmt::format("awk '/ndev_vec_isr|switchtec|{}/ {{ for (i = 2; $i ~ /^[0-9]+$/; i++) n "
                  "+= $i }} END {{ print n + 0 }}' "
                  "/proc/interrupts",
                  address_));
  if (!interrupts) return tl::unexpected(interrupts.error());
  const auto count = number(*interrupts);
  if (!count) return tl::unexpected(count.error());
  effort.interrupts = *count;
  return effort;
}

Result<uint64_t> MainJob::guest_commands() const {
  const auto commands = guest_->run("awk '{ print $1 + $5 }' /sys/block/nvme0n1/stat");
  if (!commands) return tl::unexpected(commands.error());
  return number(*commands);
}

}  // namespace pcilend::scenarios
