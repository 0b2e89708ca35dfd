// SPDX-License-Identifier: GPL-2.0-or-later
// How a disk outlives what happens to its program and to its drive: there is one way, that of a
// crash. The kernel keeps the requests that were under way (UBLK_F_USER_RECOVERY_REISSUE), the end
// of the lease has the lender stop and reset the function, and the next run has a new lease, which
// can't be had before that; so nothing of the former queues can be done any more when requests are
// issued again. A client's queues are cleared by what its record has of them. When the drive is
// lost, not the program, this one executes itself, which ends its lease and its queues as its death
// would. A client with several paths loses the drive with the last of them, for longer than it
// waits (path_queue.h). docs/nvme.md, decisions 0031 and 0033.
#include "disk/disk.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <thread>

#include "disk/disk_queue.h"
#include "disk/namespace_fate.h"
#include "pcilend/directory.h"
#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr const char* kOwner = "pcilend-nvme-disk";
constexpr const char* kSync = "/usr/bin/sync";
// Tells the disks of ours from others', in what ublk keeps for its servers; the function's id
// below.
constexpr uint64_t kMark = 0x70636c6eULL << 32;
constexpr size_t kTransferWanted = size_t{128} << 10;
constexpr auto kOpenStep = 300ms;
constexpr auto kLook = 2s;  // at what becomes of the namespace
// The kernel sees that a program is gone when a request times out, if all of a queue were with it.
constexpr auto kQuiesced = 60s;
// One that has served for so long, with nothing that waits, is no drive that fails at once again.
constexpr auto kSettled = 2s;
constexpr uint64_t kRest = uint64_t{1} << 20;  // of the slice, for queues and pages of Identify

Result<UniqueFd> open_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGINT);
  ::sigaddset(&signals, SIGTERM);
  if (const int error = ::pthread_sigmask(SIG_BLOCK, &signals, nullptr))
    return fail_errno("pthread_sigmask", error);
  UniqueFd fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return fail_errno("signalfd");
  return fd;
}

// Who writes dirty pages must not wait for dirty pages, nor for its own: memory is in RAM, and is
// got without writing to disks.
Result<> stay_in_memory() {
  const rlimit all{RLIM_INFINITY, RLIM_INFINITY};
  if (::setrlimit(RLIMIT_MEMLOCK, &all) != 0) return fail_errno("RLIMIT_MEMLOCK");
  if (::mlockall(MCL_CURRENT | MCL_FUTURE) != 0) return fail_errno("mlockall");
  if (::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) != 0) return fail_errno("PR_SET_IO_FLUSHER");
  return {};
}

// sd_notify(3), if systemd has started this program.
void tell_systemd(std::string_view text) {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = path ? std::strlen(path) : 0;
  if (length == 0 || length >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, path, length);
  const size_t bytes = offsetof(sockaddr_un, sun_path) + length;
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  (void)!::sendto(socket.get(), text.data(), text.size(), MSG_NOSIGNAL,
                  reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(bytes));
}

// The numbers of all disks of ublk.
std::vector<uint32_t> ublk_numbers(const Environment& environment) {
  constexpr std::string_view kName = "ublkc";
  std::vector<uint32_t> numbers;
  for (const auto& entry : entries(environment.path("/sys/class/ublk-char"))) {
    const std::string name = entry.filename();
    if (!name.starts_with(kName)) continue;
    uint32_t number = 0;
    const char* const end = name.data() + name.size();
    if (std::from_chars(name.data() + kName.size(), end, number).ptr == end)
      numbers.push_back(number);
  }
  return numbers;
}

// Held until the program ends, also by a signal; one that executes itself takes it again.
Result<UniqueFd> lock(const Environment& environment, FunctionId function) {
  const auto path = environment.path(lock_path(function));
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file) return fail_errno(path.native());
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
  if (errno != EWOULDBLOCK) return fail_errno(path.native());
  return fail(ErrorClass::State, "{} is attached already: see 'pcilend nvme list'",
              to_string(function));
}

// Who asks for another function or another namespace will not be helped by waiting.
bool may_change(const Error& error) {
  return error.kind == ErrorClass::NotFound || error.kind == ErrorClass::State ||
         error.kind == ErrorClass::Unreachable || error.kind == ErrorClass::Failure;
}

class Disk {
 public:
  Disk(const Environment& environment, const DiskOptions& options)
      : environment_(environment), options_(options) {}
  Result<> run() {
    auto locked = lock(environment_, options_.function);
    if (!locked) return tl::unexpected(std::move(locked).error());
    lock_ = std::move(*locked);
    auto done = begin();
    if (!done && is_lost_again(done.error())) done = execute_anew(done.error().message);
    if (done) done = serve();
    if (done) done = end();
    if (!done) return give_up(std::move(done).error());
    return done;
  }

 private:
  // What a former run has left, and the record of this one.
  Result<> read_former() {
    record_.function = options_.function;
    record_.name_space = options_.name_space;
    record_.read_only = options_.read_only;
    record_.shared_fs = options_.shared_fs;
    record_.alone = options_.alone;
    record_.pid = static_cast<uint32_t>(::getpid());
    record_.start =
        static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
    record_.state = "starting";
    const auto former = read_record(environment_, options_.function);
    if (!former && former.error().kind == ErrorClass::NotFound)
      return write_record(environment_, record_);
    if (!former) return tl::unexpected(former.error());
    if (!former->number) return write_record(environment_, record_);
    const auto left = control_->info(*former->number);
    if (!left) return tl::unexpected(left.error());
    if (!*left || (*left)->ublksrv_flags != (kMark | options_.function.value))
      return write_record(environment_, record_);
    if ((*left)->state == UBLK_S_DEV_DEAD) {
      PCILEND_TRY(control_->remove(*former->number));
      return write_record(environment_, record_);
    }
    left_ = **left;
    const bool same = former->name_space == options_.name_space &&
                      former->alone == options_.alone && former->read_only == options_.read_only &&
                      former->shared_fs == options_.shared_fs;
    former_ = *former;
    if (!same) {
      left_.reset();  // it waits still
      record_ = *former;
      return fail(ErrorClass::State,
                  "/dev/{} is there of {}, namespace {}, with other options, and waits for its "
                  "program: attach it with these, or 'pcilend nvme detach {}' first",
                  former->disk(), to_string(options_.function), former->name_space,
                  to_string(options_.function));
    }
    // With all that is known of the drive: this run may be killed before it has asked.
    DiskRecord record = *former;
    record.recoveries = former->recoveries + 1;
    record.pid = record_.pid;
    record.start = record_.start;
    record.state = "recovering";
    record.error.clear();
    record.error_kind = 0;
    record_ = std::move(record);
    return write_record(environment_, record_);
  }

  Result<> begin() {
    auto signals = open_signals();
    if (!signals) return tl::unexpected(std::move(signals).error());
    signals_ = std::move(*signals);
    PCILEND_TRY(stay_in_memory());
    auto news = QueueNews::make();
    if (!news) return tl::unexpected(std::move(news).error());
    news_ = std::move(*news);
    auto control = UblkControl::open();
    if (!control) return tl::unexpected(std::move(control).error());
    control_ = std::move(*control);
    PCILEND_TRY(read_former());
    PCILEND_TRY(open_drive());
    PCILEND_TRY(describe());
    PCILEND_TRY(left_ ? take_over() : add());
    return start();
  }

  // Has this program been told to end?
  [[nodiscard]] bool told_to_end(std::chrono::milliseconds within) const {
    pollfd wait{signals_.get(), POLLIN, 0};
    return ::poll(&wait, 1, static_cast<int>(within.count())) > 0;
  }

  // How its drive is got over each of its paths: one has it alone, or as a client of its manager.
  Result<std::vector<PathOpener>> openers(const ThisHost& host, uint64_t slice) {
    const FunctionId id = options_.function;
    if (options_.alone)
      return std::vector<PathOpener>{{to_string(id), [host, id, slice](uint64_t) {
                                        return Drive::open_alone(host, id, kOwner, slice);
                                      }}};
    auto adapters = choose_paths(host, id, options_.paths);
    if (!adapters) return tl::unexpected(std::move(adapters).error());
    // Those of a former run are paths still, though they may be down just now.
    for (const std::string& adapter : record_.paths)
      if (options_.paths.empty() && std::ranges::find(*adapters, adapter) == adapters->end())
        adapters->push_back(adapter);
    record_.paths = *adapters;
    return join_openers(id, kOwner, *adapters, slice, true);
  }

  Result<std::unique_ptr<Paths>> open_once(const ThisHost& host, uint64_t slice) {
    auto all = openers(host, slice);
    if (!all) return tl::unexpected(std::move(all).error());
    PathsOptions wanted{.former = record_.clients};
    wanted.accept = [this](Drive& drive) { return accept(drive); };
    wanted.remember = [this](const std::vector<ClientName>& clients) { return remember(clients); };
    wanted.tell = [this](const std::string& text) {
      std::cerr << to_string(options_.function) << ": " << text << "\n";
    };
    return Paths::open(std::move(*all), wanted);
  }

  Result<> open_drive() {
    const auto host = ThisHost::open();
    if (!host) return tl::unexpected(host.error());
    const size_t depth = left_ ? left_->queue_depth : options_.depth;
    const size_t queues = left_ ? left_->nr_hw_queues : options_.queues;
    // Buffers for each request, and a page with the addresses of one's pages.
    const uint64_t slice = std::bit_ceil(
        kRest + queues * depth *
                    (2 * kTransferWanted + kStaged + kPage + sizeof(Command) + kCompletionBytes));
    const auto end = left_ ? lost_since() + options_.patience : steady_clock::now() + options_.wait;
    for (;;) {
      auto paths = open_once(*host, std::max(slice, Lease::kSlice));
      if (paths) {
        paths_ = std::move(*paths);
        return {};
      }
      if (!may_change(paths.error()) || steady_clock::now() > end)
        return tl::unexpected(std::move(paths).error());
      if (told_to_end(kOpenStep))
        return fail(ErrorClass::State, "{} is not attached: it was told to end",
                    to_string(options_.function));
    }
  }

  // Paths that come back lead to the same drive.
  Result<> accept(Drive& drive) {
    const std::lock_guard lock(record_mutex_);
    if (!described_) return {};
    const auto name_space = drive.name_space(options_.name_space);
    if (!name_space) return tl::unexpected(name_space.error());
    const auto health = drive.health();
    if (!health) return tl::unexpected(health.error());
    return check_same(record_, drive.info(), *name_space, *health);
  }

  // Whoever comes next must know what to clear first.
  Result<> remember(const std::vector<ClientName>& clients) {
    if (options_.alone) return {};
    const std::lock_guard lock(record_mutex_);
    record_.clients = clients;
    return write_record(environment_, record_);
  }

  [[nodiscard]] Result<> check_same(const DiskRecord& known, const ControllerInfo& info,
                                    const NamespaceInfo& name_space, const Health& health) const {
    if (known.serial != info.serial || known.model != info.model ||
        known.blocks > name_space.blocks || known.block_bytes != name_space.block_bytes ||
        differ(known.identity, name_space.identity))
      return fail(ErrorClass::State, "{} is another drive than it was, or another namespace",
                  to_string(options_.function));
    // What was written and not flushed is lost then, and who has written it does not know.
    if (info.volatile_cache && known.power_cycles != health.power_cycles)
      return fail(ErrorClass::State,
                  "{} has lost power, and with it what was in its cache: check the file system",
                  to_string(options_.function));
    return {};
  }

  Result<> describe() {
    Drive& drive = paths_->drive();
    auto described = describe(drive);
    if (described || !drive.lost()) return described;
    return fail(ErrorClass::Unreachable, "{}", described.error().message);
  }

  Result<> describe(Drive& drive) {
    const auto name_space = drive.name_space(options_.name_space);
    if (!name_space) return tl::unexpected(name_space.error());
    const ControllerInfo& info = drive.info();
    DiskTraits traits{
        *name_space,         std::min(kTransferWanted, drive.queues().limits().transfer),
        info.volatile_cache, info.deallocates,
        info.writes_zeroes,  options_.read_only};
    auto translator = Translator::make(traits);
    if (!translator)
      return tl::unexpected(std::move(translator).error().in(to_string(options_.function)));
    translator_.emplace(std::move(*translator));
    if (former_ && left_ && left_->max_io_buf_bytes > traits.transfer)
      return fail(ErrorClass::State, "{} is another drive than it was",
                  to_string(options_.function));
    const auto health = drive.health();
    if (!health) return tl::unexpected(health.error());
    if (former_ && left_) PCILEND_TRY(check_same(*former_, info, *name_space, *health));
    const std::lock_guard lock(record_mutex_);
    described_ = true;
    record_.power_cycles = health->power_cycles;
    record_.model = info.model;
    record_.serial = info.serial;
    // One that has grown meanwhile is as large as it was for those who have the disk.
    record_.blocks = former_ && left_ ? former_->blocks : name_space->blocks;
    record_.block_bytes = name_space->block_bytes;
    record_.identity = name_space->identity;
    return {};
  }

  Result<> add() {
    ublksrv_ctrl_dev_info wanted{};
    wanted.nr_hw_queues = options_.queues;
    wanted.queue_depth = static_cast<__u16>(options_.depth);
    wanted.max_io_buf_bytes = static_cast<__u32>(translator_->traits().transfer);
    wanted.flags = kUblkUserCopy | UBLK_F_USER_RECOVERY | UBLK_F_USER_RECOVERY_REISSUE;
    wanted.ublksrv_flags = kMark | options_.function.value;
    const auto made = control_->add(wanted);
    if (!made) return tl::unexpected(made.error());
    record_.number = made->dev_id;
    record_.queues = made->nr_hw_queues;
    record_.depth = made->queue_depth;
    transfer_ = translator_->traits().transfer;
    PCILEND_TRY(write_record(environment_, record_));
    PCILEND_TRY(environment_.replace_file(properties_path(record_), properties()));
    return control_->set_parameters(made->dev_id, translator_->parameters());
  }

  Result<> take_over() {
    record_.queues = left_->nr_hw_queues;
    record_.depth = left_->queue_depth;
    transfer_ = left_->max_io_buf_bytes;
    return control_->start_recovery(*record_.number, steady_clock::now() + kQuiesced);
  }

  // For udev (tools/udev/91-pcilend-nvme-disk.rules).
  [[nodiscard]] std::string properties() const {
    std::string text = fmt::format("PCILEND_FUNCTION={}\nPCILEND_NAMESPACE={}\n",
                                   to_string(options_.function), options_.name_space);
    if (options_.shared_fs) text += "PCILEND_SHARED_FS=1\n";
    return text;
  }

  // Of a drive of its own there is one for each queue behind that of the first; a client has one.
  [[nodiscard]] std::optional<uint16_t> interrupt_of(uint16_t queue) const {
    if (queue != 0 && !options_.alone) return {};
    return queue;
  }

  // With one way to the drive, a loss of it is that of the drive (decision 0031).
  [[nodiscard]] std::chrono::milliseconds hold() const {
    return paths_->count() > 1 ? options_.patience : 0s;
  }

  Result<> start() {
    const std::string path = fmt::format("/dev/ublkc{}", *record_.number);
    file_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!file_) return fail_errno(path);
    for (uint32_t number = 0; number < record_.queues; ++number) {
      const auto queue = static_cast<uint16_t>(number);
      auto made =
          DiskQueue::make(*paths_, *translator_, file_.get(),
                          {queue, record_.depth, transfer_, interrupt_of(queue), hold()}, *news_);
      if (!made) return tl::unexpected(std::move(made).error());
      queues_.push_back(std::move(*made));
    }
    if (paths_->count() > 1) paths_->start();
    // What a former run has left waits on if the drive is lost again before they are all served.
    news_->leave_requests(left_.has_value());
    // Never the first thread: that one lives on when the program executes itself.
    for (const auto& queue : queues_) threads_.emplace_back([&queue] { queue->run(); });
    PCILEND_TRY(left_ ? control_->end_recovery(*record_.number) : control_->start(*record_.number));
    if (const auto loss = news_->loss(); loss && !left_)
      return fail(ErrorClass::Unreachable, "{}: {}", to_string(options_.function), *loss);
    news_->leave_requests(true);
    PCILEND_TRY(enter("ready"));
    ready_ = steady_clock::now();
    tell_systemd(fmt::format("READY=1\nSTATUS={} is /dev/{}\n", to_string(options_.function),
                             record_.disk()));
    return {};
  }

  Result<> enter(const char* state) {
    const std::lock_guard lock(record_mutex_);
    record_.state = state;
    return write_record(environment_, record_);
  }

  // Until it is told to end.
  Result<> serve() {
    pollfd wait[] = {{signals_.get(), POLLIN, 0}, {news_->fd(), POLLIN, 0}};
    for (;;) {
      const int come = ::poll(wait, 2, static_cast<int>(std::chrono::milliseconds(kLook).count()));
      if (come < 0 && errno != EINTR) return fail_errno("poll");
      if (come > 0 && wait[0].revents != 0) return {};
      if (come > 0) return execute_anew(news_->loss().value_or(""));
      if (come == 0) PCILEND_TRY(watch_namespace());
    }
  }

  // Its namespace has changed: what has grown goes on as it was, what is another one now must not
  // be written to as if it were not. Whoever does not answer is asked again.
  Result<> watch_namespace() {
    const auto drive = paths_->working();
    if (!drive) return {};
    const auto changes = drive->changes();
    unseen_ |= changes && changes->has(options_.name_space);
    if (!unseen_) return {};
    const auto name_space = drive->name_space(options_.name_space);
    const std::lock_guard lock(record_mutex_);
    const NamespaceFate fate =
        fate_of(translator_->traits().name_space, record_.blocks, name_space);
    unseen_ = fate == NamespaceFate::Unknown;
    if (fate == NamespaceFate::Other)
      return fail(ErrorClass::State,
                  "namespace {} of {} is gone, or another one now: what is asked of its disk "
                  "fails. Unmount it, and attach it anew",
                  options_.name_space, to_string(options_.function));
    if (fate != NamespaceFate::Grown) return {};
    record_.error = fmt::format("namespace {} has {} blocks now, and the disk {}: attach it anew",
                                options_.name_space, name_space->blocks, record_.blocks);
    std::cerr << to_string(options_.function) << ": " << record_.error << "\n";
    return write_record(environment_, record_);
  }

  // Of a sequence of losses, the first.
  [[nodiscard]] steady_clock::time_point lost_since() const {
    return options_.lost_since ? steady_clock::time_point(*options_.lost_since)
                               : steady_clock::now();
  }

  // A drive that was there, and is gone before the disk of a former run is served.
  [[nodiscard]] bool is_lost_again(const Error& error) const {
    return left_ && !ready_ && paths_ &&
           (error.kind == ErrorClass::Unreachable || news_->loss() || !paths_->working());
  }

  [[nodiscard]] bool has_done_something() const {
    return news_->done() != 0 ||
           (ready_ && news_->under_way() == 0 && steady_clock::now() - *ready_ > kSettled);
  }

  // All that this program has of the drive and of the disk ends with it, in the kernel.
  Result<> execute_anew(const std::string& reason) {
    const auto now = steady_clock::now();
    const auto since = has_done_something() ? now : lost_since();
    if (now - since > options_.patience)
      return fail(ErrorClass::Unreachable,
                  "{} is lost again and again, and has done nothing in {} s: {}",
                  to_string(options_.function),
                  std::chrono::duration_cast<std::chrono::seconds>(now - since).count(), reason);
    // One that is lost as soon as it is opened must not keep a CPU, and its manager, busy.
    if (options_.lost_since && !has_done_something()) (void)told_to_end(kOpenStep);
    std::cerr << to_string(options_.function) << ": " << reason << ": it is opened again\n";
    PCILEND_TRY(enter("recovering"));
    tell_systemd(fmt::format("STATUS={} is lost: {}\n", to_string(options_.function), reason));
    DiskOptions next = options_;
    next.lost_since =
        std::chrono::duration_cast<std::chrono::milliseconds>(since.time_since_epoch());
    std::vector<std::string> words = to_words(next);
    words.insert(words.begin(), kOwner);
    std::vector<char*> arguments;
    arguments.reserve(words.size() + 1);
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ::execv("/proc/self/exe", arguments.data());
    return fail_errno("/proc/self/exe");
  }

  // In order: what is in caches is written, the disk goes, its queues are deleted, the drive is
  // shut down, the lease ends.
  Result<> end() {
    PCILEND_TRY(enter("ending"));
    // A drive that is lost from here on fails what is written; before, nobody serves the disk.
    news_->leave_requests(false);
    if (!news_->loss()) write_caches();
    PCILEND_TRY(control_->stop(*record_.number));
    join();
    PCILEND_TRY(control_->remove(*record_.number));
    paths_.reset();
    return remove_record(environment_, record_);
  }

  // By a process of its own: who waits for the disk can't be killed, and while this program can't
  // be, no next one can serve it.
  void write_caches() const {
    const std::string disk = "/dev/" + record_.disk();
    const std::array<const char*, 3> words{kSync, disk.c_str(), nullptr};
    pid_t child = 0;
    if (const int error = ::posix_spawn(&child, kSync, nullptr, nullptr,
                                        const_cast<char* const*>(words.data()), environ)) {
      std::cerr << kSync << ": " << strerrordesc_np(error) << "\n";
      return;
    }
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    if (paths_) paths_->stop();
    queues_.clear();
    file_.reset();
  }

  // The disk goes, too, as nobody will serve it: who waits for it gets errors. Not one that waits
  // for a run with other options.
  Result<> give_up(Error error) {
    if (record_.start == 0) {  // that far it did not come
      const auto former = read_record(environment_, options_.function);
      if (former) former_ = record_ = *former;
    }
    const bool ours = record_.number && (left_ || !former_);
    if (ours) {
      if (paths_) paths_->stop();
      news_->leave_requests(false);
      const auto stopped = control_->stop(*record_.number);
      // Its threads can't be waited for; the end of this program ends them.
      if (!stopped) {
        std::cerr << error.message << "; and " << stopped.error().message << "\n";
        std::_Exit(static_cast<int>(error.kind));
      }
      join();
      if (const auto removed = control_->remove(*record_.number); !removed)
        std::cerr << removed.error().message << "\n";
      (void)environment_.remove_file(properties_path(record_));
      record_.number.reset();
    }
    record_.function = options_.function;
    record_.start =
        static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
    record_.pid = 0;
    record_.state = ours || !record_.number ? "failed" : "waiting";
    record_.error = error.message;
    record_.error_kind = static_cast<int>(error.kind);
    // One that can't be read may be of a disk that is there still: remove_disk() sees to both.
    const auto former = read_record(environment_, options_.function);
    if (former || former.error().kind == ErrorClass::NotFound)
      (void)write_record(environment_, record_);
    tell_systemd(fmt::format("STATUS={}\n", error.message));
    return tl::unexpected(std::move(error));
  }

  const Environment& environment_;
  const DiskOptions& options_;
  UniqueFd lock_;
  UniqueFd signals_;
  std::mutex record_mutex_;  // of what is written while paths come back
  DiskRecord record_;
  bool described_ = false;  // the drive is known by the record
  bool unseen_ = false;     // its namespace has changed, and was not looked at since
  std::optional<steady_clock::time_point> ready_;
  std::optional<DiskRecord> former_;
  std::optional<ublksrv_ctrl_dev_info> left_;  // a disk of a former run, to be taken over
  std::unique_ptr<QueueNews> news_;
  std::unique_ptr<UblkControl> control_;
  std::unique_ptr<Paths> paths_;  // outlive the queues
  std::optional<Translator> translator_;
  size_t transfer_ = 0;
  UniqueFd file_;  // /dev/ublkcN
  std::vector<std::unique_ptr<DiskQueue>> queues_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::vector<std::string> to_words(const DiskOptions& options) {
  std::vector<std::string> words{to_string(options.function),
                                 "--namespace",
                                 std::to_string(options.name_space),
                                 "--queues",
                                 std::to_string(options.queues),
                                 "--depth",
                                 std::to_string(options.depth),
                                 "--wait",
                                 std::to_string(options.wait.count()),
                                 "--patience",
                                 std::to_string(options.patience.count())};
  if (options.lost_since) {
    words.emplace_back("--lost-since");
    words.push_back(std::to_string(options.lost_since->count()));
  }
  if (!options.paths.empty()) {
    words.emplace_back("--path");
    words.push_back(fmt::format("{}", fmt::join(options.paths, ",")));
  }
  if (options.alone) words.emplace_back("--alone");
  if (options.read_only) words.emplace_back("--read-only");
  if (options.shared_fs) words.emplace_back("--shared-fs");
  return words;
}

Result<> run_disk(const Environment& environment, const DiskOptions& options) {
  // By which it is known (record.h); one that has executed itself is called "exe".
  ::prctl(PR_SET_NAME, kOwner, 0, 0, 0);
  Disk disk(environment, options);
  return disk.run();
}

Result<> remove_disk(const Environment& environment, FunctionId function) {
  const auto locked = lock(environment, function);
  if (!locked) return tl::unexpected(locked.error());
  auto record = read_record(environment, function);
  if (!record && record.error().kind == ErrorClass::NotFound)
    return tl::unexpected(std::move(record).error());
  DiskRecord left;
  left.function = function;
  if (record) left = std::move(*record);
  // The kernel knows it even if its record can't be read.
  for (const uint32_t number : ublk_numbers(environment)) {
    auto control = UblkControl::open();
    if (!control) return tl::unexpected(std::move(control).error());
    const auto disk = (*control)->info(number);
    if (!disk) return tl::unexpected(disk.error());
    if (!*disk || (*disk)->ublksrv_flags != (kMark | function.value)) continue;
    PCILEND_TRY((*control)->stop(number));
    PCILEND_TRY((*control)->remove(number));
    left.number = number;
  }
  return remove_record(environment, left);
}

}  // namespace pcilend::nvme
