// SPDX-License-Identifier: GPL-2.0-or-later
#include "disk/ublk.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr const char* kControl = "/dev/ublk-control";
// A start reads the partition table, a stop waits for what is under way, which its queues give up
// after 30 s.
constexpr auto kPatience = 90s;
constexpr auto kStep = 50ms;
constexpr uint16_t kNoQueue = 0xffff;

ublksrv_ctrl_cmd command_to(uint32_t number) {
  ublksrv_ctrl_cmd command{};
  command.dev_id = number;
  command.queue_id = kNoQueue;
  return command;
}

template <class Buffer>
void attach(ublksrv_ctrl_cmd& command, Buffer& buffer) {
  command.addr = reinterpret_cast<uintptr_t>(&buffer);
  command.len = sizeof buffer;
}

}  // namespace

Result<std::unique_ptr<Uring>> Uring::make(unsigned entries, unsigned flags) {
  std::unique_ptr<Uring> ring(new Uring);
  const int error = ::io_uring_queue_init(entries, &ring->ring_, flags);
  ring->ready_ = error == 0;
  if (ring->ready_) return ring;
  if (error == -EPERM)
    return fail(ErrorClass::Permission,
                "this host allows no io_uring: see sysctl kernel.io_uring_disabled");
  return fail_errno("io_uring_setup", -error);
}

io_uring_sqe* Uring::command(int file, uint32_t operation, uint64_t user_data) {
  io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
  const size_t bytes = (ring_.flags & IORING_SETUP_SQE128) != 0 ? 2 * sizeof *entry : sizeof *entry;
  std::memset(static_cast<void*>(entry), 0, bytes);
  entry->opcode = IORING_OP_URING_CMD;
  entry->fd = file;
  entry->off = operation;  // its low half is the operation
  entry->user_data = user_data;
  return entry;
}

Result<std::unique_ptr<UblkControl>> UblkControl::open() {
  UniqueFd device(::open(kControl, O_RDWR | O_CLOEXEC));
  if (!device && (errno == ENOENT || errno == ENODEV || errno == ENXIO))
    return fail(ErrorClass::Unsupported, "{} is not there: modprobe ublk_drv", kControl);
  if (!device) return fail_errno(kControl);
  auto ring = Uring::make(4, IORING_SETUP_SQE128);
  if (!ring) return tl::unexpected(std::move(ring).error());
  return std::unique_ptr<UblkControl>(new UblkControl(std::move(device), std::move(*ring)));
}

Result<int> UblkControl::execute(uint32_t operation, const ublksrv_ctrl_cmd& command) {
  if (stuck_) return fail(ErrorClass::Unreachable, "a former command to {} hangs", kControl);
  io_uring_sqe* const entry = ring_->command(device_.get(), operation, 0);
  std::memcpy(static_cast<void*>(entry->cmd), &command, sizeof command);
  if (const int sent = ::io_uring_submit(ring_->get()); sent < 0)
    return fail_errno("io_uring_enter", -sent);
  const auto end = steady_clock::now() + kPatience;
  io_uring_cqe* completion = nullptr;
  for (;;) {
    __kernel_timespec step{.tv_sec = 1, .tv_nsec = 0};
    const int waited = ::io_uring_wait_cqe_timeout(ring_->get(), &completion, &step);
    if (waited == 0) break;
    if (waited != -ETIME && waited != -EINTR) return fail_errno("io_uring_enter", -waited);
    if (steady_clock::now() < end) continue;
    stuck_ = true;
    return fail(ErrorClass::Unreachable, "the kernel has not answered a command to {} for {} s",
                kControl, std::chrono::seconds(kPatience).count());
  }
  const int answer = completion->res;
  ::io_uring_cqe_seen(ring_->get(), completion);
  return answer;
}

Result<> UblkControl::done(const char* what, uint32_t number, const Result<int>& answer) const {
  if (!answer) return tl::unexpected(answer.error());
  if (*answer >= 0) return {};
  return fail_errno(fmt::format("/dev/ublkb{} can't be {}", number, what), -*answer);
}

Result<std::optional<ublksrv_ctrl_dev_info>> UblkControl::info(uint32_t number) {
  auto command = command_to(number);
  attach(command, info_);
  const auto answer = execute(ublk_report(UBLK_CMD_GET_DEV_INFO), command);
  if (answer && *answer == -ENODEV) return std::optional<ublksrv_ctrl_dev_info>();
  PCILEND_TRY(done("looked at", number, answer));
  return std::optional(info_);
}

Result<ublksrv_ctrl_dev_info> UblkControl::add(const ublksrv_ctrl_dev_info& wanted) {
  info_ = wanted;
  info_.dev_id = ~0U;  // any
  auto command = command_to(info_.dev_id);
  attach(command, info_);
  const auto answer = execute(ublk_control(UBLK_CMD_ADD_DEV), command);
  if (!answer) return tl::unexpected(answer.error());
  if (*answer < 0) return fail_errno("a disk of ublk can't be added", -*answer);
  if ((info_.flags & wanted.flags) == wanted.flags) return info_;
  const uint32_t number = info_.dev_id;
  PCILEND_TRY(remove(number));
  return fail(ErrorClass::Unsupported,
              "the ublk_drv of this kernel is too old: 6.12 is the oldest that will do");
}

Result<> UblkControl::set_parameters(uint32_t number, const ublk_params& parameters) {
  parameters_ = parameters;
  auto command = command_to(number);
  attach(command, parameters_);
  return done("given its size", number, execute(ublk_control(UBLK_CMD_SET_PARAMS), command));
}

Result<> UblkControl::start(uint32_t number) {
  auto command = command_to(number);
  command.data[0] = static_cast<uint64_t>(::getpid());
  return done("started", number, execute(ublk_control(UBLK_CMD_START_DEV), command));
}

Result<> UblkControl::start_recovery(uint32_t number, steady_clock::time_point end) {
  for (;;) {
    const auto answer = execute(ublk_control(UBLK_CMD_START_USER_RECOVERY), command_to(number));
    // Begun by one that has died since, before it served a queue: 6.12 refuses that a second time.
    if (answer && *answer == -EINVAL) {
      const auto left = info(number);
      if (left && *left && (*left)->state == UBLK_S_DEV_QUIESCED) return {};
    }
    if (!answer || *answer != -EBUSY || steady_clock::now() > end)
      return done("taken over", number, answer);
    std::this_thread::sleep_for(kStep);
  }
}

Result<> UblkControl::end_recovery(uint32_t number) {
  auto command = command_to(number);
  command.data[0] = static_cast<uint64_t>(::getpid());
  return done("taken over", number, execute(ublk_control(UBLK_CMD_END_USER_RECOVERY), command));
}

Result<> UblkControl::stop(uint32_t number) {
  return done("stopped", number, execute(ublk_control(UBLK_CMD_STOP_DEV), command_to(number)));
}

Result<> UblkControl::remove(uint32_t number) {
  return done("removed", number, execute(ublk_report(kUblkRemoveLater), command_to(number)));
}

}  // namespace pcilend::nvme
