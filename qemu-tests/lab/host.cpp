// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/host.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <mutex>

#include "lab/leaks.h"

namespace pcilend::lab {
namespace {

namespace fs = std::filesystem;

// For a host that is up. One that boots is waited for by power_on() and reset().
constexpr auto kSession = 60s;

// Says which checkers are off; nothing on a stock kernel.
constexpr const char* kAskCheckers =
    "cd /sys/kernel/debug && [ -e kmemleak ] || exit 0\n"
    "awk '/debug_locks:/ && !$2 { print \"off: lockdep\" }' /proc/lockdep_stats\n"
    "[ \"$(cat dma-api/disabled)\" = N ] || echo 'off: DMA-API debugging'";
// Prints kmemleak's report; nothing on a stock kernel. An object is a leak when two scans see it
// unchanged, and it was 5 s old at the second.
constexpr const char* kAskForLeaks =
    "cd /sys/kernel/debug && [ -e kmemleak ] || exit 0\n"
    "echo scan >kmemleak && sleep 5.5 && echo scan >kmemleak && cat kmemleak && "
    "echo clear >kmemleak";

Result<UniqueFd> memory_file(std::string_view content) {
  UniqueFd fd(::memfd_create("input", MFD_CLOEXEC));
  if (!fd) return fail_errno("memfd_create");
  PCILEND_TRY(write_all(fd.get(), std::as_bytes(std::span(content))));
  ::lseek(fd.get(), 0, SEEK_SET);
  return fd;
}

Result<std::string> content_of(const UniqueFd& fd) {
  std::string text;
  ::lseek(fd.get(), 0, SEEK_SET);
  char bytes[16 * 1024];
  ssize_t n = 0;
  while ((n = ::read(fd.get(), bytes, sizeof bytes)) > 0)
    text.append(bytes, static_cast<size_t>(n));
  if (n < 0) return fail_errno("read");
  return text;
}

Result<std::string> successful(const Command& command, Result<Output> output) {
  if (!output) return tl::unexpected(output.error());
  if (output->code == 0) return output->out;
  std::string complaint = output->err.empty() ? output->out : output->err;
  while (!complaint.empty() && complaint.back() == '\n') complaint.pop_back();
  return fail(ErrorClass::Failure, "'{}' ended with {}: {}", command.text(), output->code,
              complaint.empty() ? "no message" : complaint);
}

}  // namespace

Command::Command(std::vector<std::string> argv)
    : text_(fmt::format("{}", fmt::join(argv, " "))), argv_(std::move(argv)) {}

Command Command::behind(std::vector<std::string> prefix) const {
  Command whole = *this;
  whole.argv_ = std::move(prefix);
  whole.argv_.insert(whole.argv_.end(), argv_.begin(), argv_.end());
  return whole;
}

std::string Output::text() const {
  return !out.empty() && out.back() == '\n' ? out.substr(0, out.size() - 1) : out;
}

struct Running::Shared {
  mutable std::mutex mutex;
  std::string out;
  std::string err;
  UniqueFd interrupts;
  std::atomic<bool> ended = false;
};

Running::Running(Running&&) noexcept = default;

Running::~Running() {
  if (!shared_) return;
  interrupt();
  interrupt();
  result_.wait();
}

Result<Output> Running::wait() {
  return result_.get();
}

bool Running::ended() const {
  return shared_->ended;
}

std::string Running::output_so_far() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->out;
}

void Running::interrupt() {
  const uint64_t one = 1;
  if (::write(shared_->interrupts.get(), &one, sizeof one) < 0) return;
}

Host::Host(Machine machine, Transcript& transcript)
    : machine_(std::move(machine)), transcript_(transcript) {}

Result<Running> Host::start_as(const std::string& who, const Command& command,
                               const ExecOptions& options) const {
  transcript_.say(who, '$', command.text());
  const auto begin = Deadline::Clock::now();
  auto session = machine_.open_session(Deadline(kSession));
  if (!session) {
    transcript_.say(who, '!', session.error().message);
    return tl::unexpected(session.error());
  }
  auto input = memory_file(options.input);
  if (!input) return tl::unexpected(input.error());

  auto shared = std::make_shared<Running::Shared>();
  shared->interrupts.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE));
  auto work = [this, who, command, options, begin, shared, session = std::move(*session),
               input = std::move(*input)]() mutable -> Result<Output> {
    const auto collect = [&shared](std::string& into) {
      return [&shared, &into](std::string_view bytes) {
        const std::lock_guard lock(shared->mutex);
        into.append(bytes);
      };
    };
    agent::RunStreams streams;
    streams.output = collect(shared->out);
    streams.errors = collect(shared->err);
    streams.interrupt = shared->interrupts.get();
    if (!options.input.empty()) streams.input = input.get();
    agent::Limits limits;
    limits.total = options.timeout;
    limits.obituary = [this] { return machine_.obituary(); };
    // Not for as long as the result is kept: the session holds a port of the agent.
    agent::Session used = std::move(session);
    auto status = used.run(command.argv(), streams, limits);

    const std::lock_guard lock(shared->mutex);
    const auto time =
        std::chrono::duration_cast<std::chrono::milliseconds>(Deadline::Clock::now() - begin);
    if (!shared->out.empty()) transcript_.say(who, '|', shared->out);
    if (!shared->err.empty()) transcript_.say(who, '>', shared->err);
    shared->ended = true;
    if (!status) {
      Error error = std::move(status).error().in(fmt::format("{}: '{}'", who, command.text()));
      transcript_.say(who, '!', error.message);
      return tl::unexpected(std::move(error));
    }
    if (status->code() != 0)
      transcript_.say(who, '=',
                      fmt::format("exit code {} after {} ms", status->code(), time.count()));
    return Output{status->code(), shared->out, shared->err, time};
  };
  auto result = std::async(std::launch::async, std::move(work)).share();
  return Running(std::move(shared), std::move(result));
}

Result<Output> Host::exec_as(const std::string& who, const Command& command,
                             const ExecOptions& options) const {
  auto running = start_as(who, command, options);
  if (!running) return tl::unexpected(running.error());
  return running->wait();
}

Result<Output> Host::exec(const Command& command, const ExecOptions& options) const {
  return exec_as(name(), command, options);
}

Result<std::string> Host::run(const Command& command, const ExecOptions& options) const {
  auto text = successful(command, exec(command, options));
  if (!text) return tl::unexpected(std::move(text).error().in(name()));
  return text;
}

Result<nlohmann::json> Host::json(const Command& command, const ExecOptions& options) const {
  const auto text = run(command, options);
  if (!text) return tl::unexpected(text.error());
  auto parsed = nlohmann::json::parse(*text, nullptr, false);
  if (parsed.is_discarded())
    return fail(ErrorClass::Failure, "{}: '{}' did not print JSON", name(), command.text());
  return parsed;
}

Result<Running> Host::start(const Command& command, const ExecOptions& options) const {
  return start_as(name(), command, options);
}

Result<Output> Host::until(const Command& command, const Accept& accept,
                           std::chrono::milliseconds within) const {
  std::optional<Result<Output>> last;
  const auto met = [&] {
    last = exec(command);
    return !*last || accept(**last);
  };
  if (wait_until(Deadline(within), met, 100ms)) return std::move(*last);
  const Output& output = **last;
  return fail(ErrorClass::State, "{}: '{}' is not as awaited after {} ms: exit code {}, {}{}",
              name(), command.text(), (within * patience.load()).count(), output.code, output.out,
              output.err);
}

Result<Output> Host::until(const Command& command, std::chrono::milliseconds within) const {
  return until(
      command, [](const Output& output) { return output.code == 0; }, within);
}

Result<> Host::put(const std::string& file, const std::string& to) const {
  transcript_.say(name(), '<', fmt::format("{} as {}", file, to));
  const UniqueFd source(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!source || ::fstat(source.get(), &status) < 0) return fail_errno(file);
  if (S_ISDIR(status.st_mode))
    return fail(ErrorClass::Usage, "{} is a directory: pack it with tar", file);
  auto session = machine_.open_session(Deadline(kSession));
  if (!session) return tl::unexpected(session.error());
  agent::Limits limits;
  limits.obituary = [this] { return machine_.obituary(); };
  auto sent =
      session->put(source.get(), {to, fs::path(file).filename(), status.st_mode & 07777U}, limits);
  if (!sent) return tl::unexpected(std::move(sent).error().in(name()));
  return {};
}

Result<> Host::write(const std::string& path, std::string_view content, mode_t mode) const {
  transcript_.say(name(), '<', fmt::format("{} bytes as {}", content.size(), path));
  const auto source = memory_file(content);
  if (!source) return tl::unexpected(source.error());
  auto session = machine_.open_session(Deadline(kSession));
  if (!session) return tl::unexpected(session.error());
  auto sent = session->put(source->get(), {path, fs::path(path).filename(), mode}, {});
  if (!sent) return tl::unexpected(std::move(sent).error().in(name()));
  return {};
}

Result<std::string> Host::read(const std::string& path) const {
  const auto sink = memory_file({});
  if (!sink) return tl::unexpected(sink.error());
  auto session = machine_.open_session(Deadline(kSession));
  if (!session) return tl::unexpected(session.error());
  auto received = session->get(path, sink->get(), {});
  if (!received) return tl::unexpected(std::move(received).error().in(name()));
  return content_of(*sink);
}

Result<> Host::get(const std::string& from, const std::string& file) const {
  transcript_.say(name(), '>', fmt::format("{} as {}", from, file));
  std::error_code ignored;
  fs::path target = file;
  if (fs::is_directory(target, ignored)) target /= fs::path(from).filename();
  std::string aside = target.native() + ".XXXXXX";
  const UniqueFd sink(::mkostemp(aside.data(), O_CLOEXEC));
  if (!sink) return fail_errno(target.native());
  const auto receive = [&]() -> Result<> {
    auto session = machine_.open_session(Deadline(kSession));
    if (!session) return tl::unexpected(session.error());
    agent::Limits limits;
    limits.obituary = [this] { return machine_.obituary(); };
    auto mode = session->get(from, sink.get(), limits);
    if (!mode) return tl::unexpected(std::move(mode).error().in(name()));
    if (::fchmod(sink.get(), *mode) < 0 || ::rename(aside.c_str(), target.c_str()) < 0)
      return fail_errno(target.native());
    return {};
  };
  auto received = receive();
  if (!received) ::unlink(aside.c_str());
  return received;
}

Result<> Host::power_off() const {
  transcript_.say(name(), '*', "power off");
  return machine_.power_off();
}

Result<> Host::power_on(std::chrono::milliseconds within) const {
  transcript_.say(name(), '*', "power on");
  PCILEND_TRY(machine_.power_on());
  return machine_.wait_until_up(Deadline(within));
}

Result<> Host::reset(std::chrono::milliseconds within) const {
  transcript_.say(name(), '*', "reset");
  PCILEND_TRY(machine_.reset());
  return machine_.wait_until_up(Deadline(within));
}

Result<> Host::panic() const {
  transcript_.say(name(), '*', "panic");
  return machine_.panic();
}

Result<> Host::inject_pcie_error(const std::string& device, uint32_t status) const {
  transcript_.say(name(), '*', fmt::format("{} reports error {:#x}", device, status));
  return machine_.inject_pcie_error(device, status);
}

Result<std::string> Host::address(const std::string& id) const {
  for (const DeviceState& device : machine_.state().devices)
    if (device.id == id && device.address) return *device.address;
  const auto addresses = machine_.pci_addresses();
  if (!addresses) return tl::unexpected(addresses.error());
  const auto at = addresses->find(id);
  if (at == addresses->end())
    return fail(ErrorClass::NotFound, "{} has no PCI device with the id '{}'", name(), id);
  return at->second;
}

Result<std::string> Host::address(size_t index) const {
  const auto& devices = machine_.state().devices;
  if (index >= devices.size())
    return fail(ErrorClass::NotFound, "{} has {} devices of the lab, not {}", name(),
                devices.size(), index + 1);
  return address(devices[index].id);
}

Result<> Host::mark_log() {
  console_mark_ = machine_.console_size();
  ++marks_;
  // DMA-API debugging shows its first report only, unless it is asked for all.
  PCILEND_TRY(
      run(fmt::format("echo '<4>pcilend-lab: mark {}.' > /dev/kmsg\n"
                      "cd /sys/kernel/debug/dma-api 2>/dev/null || exit 0\n"
                      "echo 1 >all_errors",
                      marks_)));
  return {};
}

void Host::forget_log() {
  console_mark_ = machine_.console_size();
  ++marks_;
}

std::string Host::log() const {
  // The console has warnings of all boots; the kernel's buffer has all of this boot.
  std::string log = machine_.console(console_mark_);
  if (machine_.condition() != Condition::Running) return log;
  // Not for the transcript what an earlier one has shown already.
  const std::string mark = fmt::format("pcilend-lab: mark {}.", marks_);
  const auto buffer =
      exec_as(name() + " (log)",
              fmt::format("dmesg | awk 'index($0, \"{}\") {{ n = 0 }} {{ l[n++] = $0 }} "
                          "END {{ for (i = 0; i < n; i++) print l[i] }}'",
                          mark),
              {});
  if (!buffer || buffer->code != 0) return log;
  if (!log.empty() && log.back() != '\n') log.push_back('\n');
  log += log_since(buffer->out, mark);
  return log;
}

Result<> Host::check_log(const Expected& expected) const {
  auto findings = scan_kernel_log(log(), expected);
  if (machine_.condition() == Condition::Running) {
    const auto off = ask_checkers(kAskCheckers);
    if (!off) return tl::unexpected(off.error());
    findings.insert(findings.end(), off->begin(), off->end());
  }
  return none_of(findings);
}

Result<> Host::check_leaks() const {
  if (machine_.condition() != Condition::Running) return {};
  const auto leaks = ask_checkers(kAskForLeaks);
  if (!leaks) return tl::unexpected(leaks.error());
  return none_of(*leaks);
}

Result<> Host::none_of(const std::vector<LogFinding>& findings) const {
  if (findings.empty()) return {};
  std::string list;
  for (const LogFinding& finding : findings)
    list += fmt::format("\n  {}: {}", finding.kind, finding.line);
  return fail(ErrorClass::Failure, "{}'s kernel log has {} finding{}:{}", name(), findings.size(),
              findings.size() == 1 ? "" : "s", list);
}

Result<std::vector<LogFinding>> Host::ask_checkers(const char* script) const {
  const auto report = run(script);
  if (!report) return tl::unexpected(report.error());
  return checker_findings(*report);
}

Result<GuestSpec> Host::guest_spec(const std::string& guest_name,
                                   const std::vector<std::string>& ids, Hostdev kind) const {
  GuestSpec spec;
  spec.name = guest_name;
  // AppArmor's profiles let no guest read from /usr/share.
  if (machine_.state().image == Image::Installed)
    spec.directory = "/var/lib/libvirt/images/pcilend-lab";
  // Its kernel waits as long as everybody: 21 s for RCU and twice 10 s for a CPU on a stock host;
  // the latter's limit is 60 s (watchdog_thresh).
  if (patience > 1)
    spec.kernel_arguments = fmt::format(" rcupdate.rcu_cpu_stall_timeout={} watchdog_thresh={}",
                                        21 * patience.load(), std::min(60, 10 * patience.load()));
  PCILEND_TRY(spec.check());
  if (ids.empty()) return spec;
  const auto list = json("pcilend list --json");
  if (!list) return tl::unexpected(list.error());
  auto names = column_of(*list, kind == Hostdev::Pci ? "address" : "uuid", ids);
  if (!names) return tl::unexpected(std::move(names).error().in(name()));
  (kind == Hostdev::Pci ? spec.places : spec.uuids) = std::move(*names);
  return spec;
}

Guest Host::guest(GuestSpec spec) const {
  return {*this, std::move(spec)};
}

}  // namespace pcilend::lab
