// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/nvme/controller.h"

#include <algorithm>
#include <thread>

#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// Registers (Base 3.1.3), and fields of them.
constexpr size_t kCapabilities = 0x00;
constexpr size_t kInterruptMask = 0x0c;
constexpr size_t kConfiguration = 0x14;
constexpr size_t kStatus = 0x1c;
constexpr size_t kAdminQueueSizes = 0x24;
constexpr size_t kAdminSubmission = 0x28;
constexpr size_t kAdminCompletion = 0x30;
constexpr size_t kMemoryLocation = 0x38;
constexpr size_t kMemorySize = 0x3c;
constexpr size_t kMemoryControl = 0x50;
constexpr size_t kMemoryStatus = 0x58;
constexpr size_t kDoorbells = 0x1000;

constexpr uint32_t kEnable = 1;
constexpr uint32_t kShutDown = 1U << 14;
constexpr uint32_t kEntrySizes = 6U << 16 | 4U << 20;  // 64 and 16 bytes
constexpr uint32_t kReady = 1;
constexpr uint32_t kFatal = 2;
constexpr uint32_t kShutDownMask = 3U << 2;
constexpr uint32_t kShutDownDone = 2U << 2;

constexpr uint32_t kMemoryRegisters = 1;  // are there
constexpr uint32_t kMemoryEnable = 2;
constexpr uint32_t kMemoryRefused = 1;

constexpr auto kPatience = 30s;  // for a command
constexpr auto kGrace = 10s;     // on top of what it says: the hosts may be busy
constexpr auto kStep = 1ms;
constexpr auto kLook = 100ms;  // at its status, while it is silent
// One command at a time, and what the drive is to answer when it has something to tell.
constexpr uint32_t kCommandSlot = 0;
constexpr uint32_t kEventSlot = 1;
constexpr uint32_t kAdminDepth = 2;
constexpr uint32_t kEventLogBytes = 512;
constexpr uint32_t kPairsMax = 64;  // more than a process can have use for

}  // namespace

Result<std::unique_ptr<Controller>> Controller::start(
    Device& device, std::optional<std::chrono::milliseconds> patience) {
  std::unique_ptr<Controller> controller(new Controller(device, patience));
  PCILEND_TRY(controller->read_capabilities());
  PCILEND_TRY(controller->enable());
  auto page = device.allocate(kPage, {.device_reads = false, .host_writes = false});
  if (!page) return tl::unexpected(std::move(page).error());
  controller->page_ = std::move(*page);
  const auto said = controller->identify(Identify::Controller, 0);
  if (!said) return tl::unexpected(said.error());
  auto info = parse_controller(*said);
  if (!info) return tl::unexpected(std::move(info).error().in(device.name()));
  controller->info_ = std::move(*info);
  PCILEND_TRY(controller->count_queues());
  return controller;
}

Result<> Controller::read_capabilities() {
  const uint64_t low = device_.load(kCapabilities);
  const uint64_t all = low | static_cast<uint64_t>(device_.load(kCapabilities + 4)) << 32;
  const auto field = [all](unsigned shift, unsigned bits) {
    return static_cast<uint32_t>(all >> shift & ((uint64_t{1} << bits) - 1));
  };
  if (all == ~uint64_t{0})
    return fail(ErrorClass::Unreachable, "{} does not answer: its link, or the lease, is lost",
                device_.name());
  capabilities_.entries = field(0, 16) + 1;
  capabilities_.timeout = field(24, 8) * 500ms;
  capabilities_.doorbell_stride = size_t{4} << field(32, 4);
  capabilities_.memory = field(57, 1) != 0;
  if (field(48, 4) != 0 || (field(37, 8) & 1) == 0)
    return fail(ErrorClass::Unsupported, "{} has no pages of 4 KiB, or not NVMe's NVM command set",
                device_.name());
  // Those of the first pair of I/O queues.
  if (doorbell(1, true) + sizeof(uint32_t) > device_.register_bytes())
    return fail(ErrorClass::Unsupported, "{} has its doorbells {} bytes apart: too far",
                device_.name(), capabilities_.doorbell_stride);
  return {};
}

size_t Controller::doorbell(uint32_t queue, bool completion) const {
  return kDoorbells + (2 * queue + (completion ? 1 : 0)) * capabilities_.doorbell_stride;
}

Result<> Controller::enable() {
  device_.store(kConfiguration, 0);
  PCILEND_TRY(await_status(kReady, 0, "stop"));
  auto admin = Ring::make(device_, kAdminDepth);
  if (!admin) return tl::unexpected(std::move(admin).error());
  admin_.emplace(std::move(*admin));
  admin_->attach({0, doorbell(0, false), doorbell(0, true)});
  const uint32_t last = admin_->entries() - 1;
  device_.store(kAdminQueueSizes, last << 16 | last);
  for (const auto& [offset, address] : {std::pair(kAdminSubmission, admin_->submission()),
                                        std::pair(kAdminCompletion, admin_->completion())}) {
    device_.store(offset, static_cast<uint32_t>(address));
    device_.store(offset + 4, static_cast<uint32_t>(address >> 32));
  }
  // Of its pin, which nobody hears: admin commands are waited for without.
  device_.store(kInterruptMask, ~0U);
  running_ = true;
  epoch_ = device_.epoch();
  device_.store(kConfiguration, kEntrySizes | kEnable);
  return await_status(kReady, kReady, "start");
}

// What is asked of it is done when these bits of its status are so.
Result<> Controller::await_status(uint32_t mask, uint32_t wanted, const char* what) const {
  const uint64_t epoch = device_.epoch();
  const auto end = steady_clock::now() + patience_.value_or(capabilities_.timeout + kGrace);
  for (;;) {
    const uint32_t status = device_.load(kStatus);
    if (status == ~0U || device_.epoch() != epoch)
      return fail(ErrorClass::Unreachable, "{} does not answer: its link, or the lease, is lost",
                  device_.name());
    if ((status & mask) == wanted) return {};
    if (wanted == kReady && (status & kFatal) != 0)
      return fail(ErrorClass::Failure, "{} has a fatal error and does not {}", device_.name(),
                  what);
    if (steady_clock::now() > end)
      return fail(ErrorClass::Unreachable, "{} does not {} in the time that it says it takes",
                  device_.name(), what);
    std::this_thread::sleep_for(kStep);
  }
}

// One command at a time: its completion's dword 0.
Result<uint32_t> Controller::execute(const Command& command, const char* what) {
  if (device_.epoch() != epoch_) stop();
  if (!running_)
    return fail(ErrorClass::State,
                "{} was stopped, by others or as it did not answer: open it again", device_.name());
  PCILEND_TRY(admin_->submit(kCommandSlot, command));
  admin_->ring();
  const auto begin = steady_clock::now();
  const auto end = begin + patience_.value_or(kPatience);
  auto look = begin + kLook;
  for (;;) {
    const auto done = take();
    if (!done) return tl::unexpected(done.error());
    if (*done && (*done)->status != 0)
      return fail(ErrorClass::Failure, "{} refuses to {}: {}", device_.name(), what,
                  status_text((*done)->status));
    if (*done) return (*done)->result;
    const auto now = steady_clock::now();
    if (now > look) {
      if (has_failed_fatally()) {
        stop();
        return fail(ErrorClass::Failure, "{} has a fatal error and does not {}: it was stopped",
                    device_.name(), what);
      }
      look = now + kLook;
    }
    // What comes later would be taken for the next one's.
    if (now > end) {
      stop();
      return fail(ErrorClass::Unreachable, "{} does not {}: it was stopped", device_.name(), what);
    }
    std::this_thread::yield();
  }
}

Result<std::optional<Done>> Controller::take() {
  auto done = admin_->take();
  if (!done || !*done || (*done)->slot != kEventSlot) return done;
  events_ = (*done)->status == 0 ? Events::Told : Events::Refused;
  event_ = parse_drive_event((*done)->result);
  return std::optional<Done>();
}

// What it tells of depends on what somebody has told it before, else on its maker. One that does
// not know that tells what it tells.
Result<> Controller::begin_events() {
  const auto told =
      execute(make_event_configuration(wanted_events(info_.events)), "tell of what happens");
  if (!told && !running_) return tl::unexpected(told.error());
  return ask_for_event();
}

Result<> Controller::ask_for_event() {
  PCILEND_TRY(admin_->submit(kEventSlot, make_event_request()));
  admin_->ring();
  events_ = Events::Asked;
  return {};
}

Result<std::optional<DriveEvent>> Controller::next_event() {
  if (failed() || events_ == Events::Refused) return std::nullopt;
  if (events_ == Events::NotAsked) PCILEND_TRY(begin_events());
  if (const auto done = take(); !done) return tl::unexpected(done.error());
  if (events_ != Events::Told) return std::nullopt;
  DriveEvent event = event_;
  const bool list = event.is_of_namespaces() && event.log == kChangedNamespacesLog;
  // One that has no such page tells on all the same.
  const auto read =
      execute(make_event_log(event.log, list ? kPage : kEventLogBytes, page_->address()),
              "give a log page");
  if (event.is_of_namespaces()) {
    event.changes.emplace();
    if (read && list) event.changes = parse_changed_namespaces(page_->bytes().first<kPage>());
    event.changes->all |= event.changes->ids.empty();
  }
  PCILEND_TRY(ask_for_event());
  return event;
}

Result<IdentifyPage> Controller::identify(Identify what, uint32_t name_space) {
  const auto done = execute(make_identify(what, name_space, page_->address()), "identify itself");
  if (!done) return tl::unexpected(done.error());
  return IdentifyPage(page_->bytes().first<kPage>());
}

Result<std::vector<uint32_t>> Controller::namespaces() {
  const auto page = identify(Identify::ActiveNamespaces, 0);
  if (!page) return tl::unexpected(page.error());
  return parse_active_namespaces(*page);
}

Result<NamespaceInfo> Controller::name_space(uint32_t id) {
  if (id == 0 || id > info_.namespaces)
    return fail(ErrorClass::NotFound, "{} has namespaces 1 to {}: name one", device_.name(),
                info_.namespaces);
  const auto page = identify(Identify::Namespace, id);
  if (!page) return tl::unexpected(page.error());
  auto info = parse_namespace(id, *page);
  if (!info) return info;
  // Drives that are older than namespaces of other kinds don't know this.
  if (const auto descriptors = identify(Identify::Descriptors, id))
    read_descriptors(*descriptors, *info);
  return info;
}

Result<Health> Controller::health() {
  PCILEND_TRY(log_to(kHealthLog, kAllNamespaces, kHealthBytes, page_->address()));
  return parse_health(page_->bytes().first<kHealthBytes>());
}

// Once, before the first queue is made.
Result<> Controller::count_queues() {
  const auto given = execute(make_queue_count(kPairsMax), "give queues");
  if (!given) return tl::unexpected(given.error());
  uint32_t pairs = std::min<uint32_t>(queues_given(*given), kPairsMax);
  // Those whose doorbells are mapped.
  while (pairs > 0 && doorbell(pairs, true) + sizeof(uint32_t) > device_.register_bytes()) --pairs;
  pairs_.assign(pairs, false);
  return {};
}

Result<ControllerMemory> Controller::open_memory() {
  if (!capabilities_.memory)
    return fail(ErrorClass::Unsupported, "{} has no memory of its own (CMB)", device_.name());
  device_.store(kMemoryControl, kMemoryRegisters);
  auto memory = parse_controller_memory(device_.load(kMemoryLocation), device_.load(kMemorySize));
  if (!memory) return tl::unexpected(std::move(memory).error().in(device_.name()));
  device_.store(kMemoryControl + 4, static_cast<uint32_t>(memory->address >> 32));
  device_.store(kMemoryControl,
                static_cast<uint32_t>(memory->address) | kMemoryEnable | kMemoryRegisters);
  if ((device_.load(kMemoryStatus) & kMemoryRefused) != 0)
    return fail(ErrorClass::Unsupported, "{} can't have its memory at {:#x}", device_.name(),
                memory->address);
  return memory;
}

QueueLimits Controller::limits() const {
  return {capabilities_.entries, info_.transfer};
}

Result<QueueGrant> Controller::create(const QueueRequest& request) {
  if (request.entries > capabilities_.entries)
    return fail(ErrorClass::Usage, "{} has queues of {} entries at most: ask for less",
                device_.name(), capabilities_.entries);
  const auto free = std::ranges::find(pairs_, false);
  if (free == pairs_.end())
    return fail(ErrorClass::State, "all {} queues of {} are in use", pairs_.size(), device_.name());
  const auto id = static_cast<uint16_t>(free - pairs_.begin() + 1);
  const auto completions =
      execute(make_completion_queue(id, request.entries, request.completion,
                                    request.vector.has_value(), request.vector.value_or(0)),
              "make a completion queue");
  if (!completions) return tl::unexpected(completions.error());
  const auto submissions = execute(make_submission_queue(id, request.entries, request.submission),
                                   "make a submission queue");
  if (!submissions) {
    if (!execute(make_delete_completion_queue(id), "delete a completion queue")) stop();
    return tl::unexpected(submissions.error());
  }
  *free = true;
  return QueueGrant{id, doorbell(id, false), doorbell(id, true)};
}

void Controller::remove(uint16_t id) {
  if (running_ && drop(id)) release(id);
}

// One that keeps a queue could do anything of it later.
Result<> Controller::drop(uint16_t id) {
  for (const auto& [command, what] :
       {std::pair(make_delete_submission_queue(id), "delete a submission queue"),
        std::pair(make_delete_completion_queue(id), "delete a completion queue")}) {
    auto deleted = execute(command, what);
    if (deleted) continue;
    stop();
    return tl::unexpected(std::move(deleted).error());
  }
  return {};
}

Result<IdentifyPage> Controller::controller_page() {
  return identify(Identify::Controller, 0);
}

Result<> Controller::identify_to(uint8_t what, uint32_t name_space, uint64_t page) {
  const auto done =
      execute(make_identify(static_cast<Identify>(what), name_space, page), "identify itself");
  if (!done) return tl::unexpected(done.error());
  return {};
}

Result<> Controller::log_to(uint8_t log, uint32_t name_space, uint32_t bytes, uint64_t data) {
  const auto done = execute(make_log_page(log, name_space, bytes, data), "give a log page");
  if (!done) return tl::unexpected(done.error());
  return {};
}

// It does nothing any more until it is reset (CSTS.CFS, Base 3.1.3.6).
bool Controller::has_failed_fatally() const {
  const uint32_t status = device_.load(kStatus);
  return status != ~0U && (status & kFatal) != 0;
}

// Caches are flushed (Base 3.6.1), then it reaches nothing any more. One that somebody has reset
// has nothing to flush, and must not be enabled again with no queues; one with a fatal error
// flushes nothing. What does not answer its lender stops with the lease.
void Controller::stop() {
  if (!running_) return;
  running_ = false;
  if (device_.epoch() == epoch_ && !has_failed_fatally()) {
    device_.store(kConfiguration, kEntrySizes | kEnable | kShutDown);
    (void)await_status(kShutDownMask, kShutDownDone, "shut down");
  }
  device_.store(kConfiguration, 0);
  (void)await_status(kReady, 0, "stop");
}

}  // namespace pcilend::nvme
