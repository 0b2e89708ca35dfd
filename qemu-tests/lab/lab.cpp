// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/lab.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <future>
#include <mutex>

#include "lab/devices.h"
#include "lab/lab_lock.h"
#include "lab/payload.h"
#include "lab/process.h"
#include "lab/qemu_command.h"
#include "lab/teardown.h"
#include "lab/tsc.h"
#include "lab/watcher.h"

namespace pcilend::lab {
namespace {

namespace fs = std::filesystem;

constexpr auto kLock = 60s;
constexpr auto kFabric = 60s;
// Seconds on an idle machine; many times that with others at work on it.
constexpr auto kBoot = 5min;
constexpr auto kTool = 60s;

// Says each step with its time.
class Steps {
 public:
  explicit Steps(const Progress& progress) : progress_(progress) {}
  void done(const std::string& step) {
    const std::lock_guard lock(mutex_);
    const std::chrono::duration<double> time = Deadline::Clock::now() - start_;
    if (progress_) progress_(time.count(), step);
  }

 private:
  std::mutex mutex_;
  const Progress& progress_;
  Deadline::Clock::time_point start_ = Deadline::Clock::now();
};

Result<> make_drive(const Drive& drive) {
  const UniqueFd fd(::open(drive.file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(drive.size)) < 0)
    return fail_errno(drive.file);
  return {};
}

// A host's own root, over the image's: it lives as long as the lab, through power cuts.
Result<> make_root(const Artefacts& artefacts, Image image, const std::string& overlay) {
  std::error_code error;
  const std::string disk = image == Image::Installed ? artefacts.installed() : artefacts.root();
  const fs::path root = fs::canonical(disk, error);
  if (error && image == Image::Installed)
    return fail(ErrorClass::NotFound,
                "{} is not there: run 'qemu-tests/image/build --kernel {} --image installed'", disk,
                artefacts.kernel);
  if (error) return fail_errno(disk, error.value());
  PCILEND_TRY(run_program(
      {artefacts.qemu_img(), "create", "-q", "-f", "qcow2", "-F", "raw", "-b", root, overlay},
      Deadline(kTool)));
  return {};
}

// Starts a program of the fabric and waits until it says that it listens.
Result<> start_server(std::vector<std::string> argv, const std::string& log,
                      const std::string& pid_file) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) < 0) return fail_errno("pipe");
  const UniqueFd output(ends[0]);
  UniqueFd output_end(ends[1]);
  SpawnRequest request;
  request.argv = std::move(argv);
  request.log = log;
  request.pid_file = pid_file;
  request.output = output_end.get();
  PCILEND_TRY(Processes().spawn(request));
  output_end.reset();

  const Deadline deadline(kFabric);
  std::string said;
  while (said.find("ready\n") == std::string::npos) {
    char bytes[256];
    ssize_t n = 0;
    if (wait_for(output.get(), POLLIN, deadline)) n = ::read(output.get(), bytes, sizeof bytes);
    if (n <= 0)
      return fail(ErrorClass::Failure, "{} is not ready; {} ends:{}", request.argv.front(), log,
                  last_lines(Environment().read(log).value_or(std::string()), 5));
    said.append(bytes, static_cast<size_t>(n));
  }
  return {};
}

Result<> start_fabric(const Artefacts& artefacts, const Layout& layout, const Options& options) {
  std::error_code error;
  fs::create_directory(layout.fabric_dir(), error);
  if (error) return fail_errno(layout.fabric_dir(), error.value());
  std::vector<std::string_view> adapters;
  for (const Adapter adapter : options.adapters) adapters.push_back(to_string(adapter));
  PCILEND_TRY(start_server(
      {artefacts.fabric(), "--dir", layout.fabric_dir(), "--hosts",
       fmt::format("{}", options.nodes()), "--paths", fmt::format("{}", options.paths), "--adapter",
       fmt::format("{}", fmt::join(adapters, ",")), "--log", layout.fabric_log()},
      layout.fabric_log(), layout.fabric_pid()));
  if (!options.rogue) return {};
  return start_server({artefacts.rogue(), "--dir", layout.fabric_dir(), "--hosts",
                       fmt::format("{}", options.hosts)},
                      layout.rogue_log(), layout.rogue_pid());
}

DeviceState remembered(const PlacedDevice& device) {
  DeviceState state{device.id, device.asked, {}, {}};
  if (device.slot) state.address = "0000:00:" + *device.slot;
  if (device.drive) state.drive = device.drive->file;
  return state;
}

// The plan of a lab: everything about it but running processes.
struct Plan {
  State state;
  std::vector<std::vector<PlacedDevice>> devices;
};

Result<Plan> plan(const Options& options, const Artefacts& artefacts, const Layout& layout) {
  Plan plan;
  plan.state.name = options.name;
  plan.state.boot = boot_id();
  plan.state.kernel = options.kernel;
  plan.state.iommu = options.iommu;
  plan.state.paths = options.paths;
  plan.state.bin = artefacts.bin;
  const QemuFiles files{artefacts.qemu(), artefacts.vmlinuz(), layout.initrd()};
  const uint64_t tsc = tsc_khz();
  const DriverCatalog catalog = qemu_catalog(artefacts.qemu());
  for (int host = 1; host <= options.hosts; ++host) {
    std::vector<DeviceString> wanted;
    for (const DeviceOption& option : options.devices)
      if (option.host == host) wanted.push_back(option.device);
    auto devices = place_devices(wanted, host, layout, catalog);
    if (!devices) return tl::unexpected(devices.error());
    HostState state;
    state.memory = options.memory_of(host);
    state.image = options.image_of(host);
    state.command = qemu_command(options, host, files, tsc, layout, *devices);
    for (const PlacedDevice& device : *devices) state.devices.push_back(remembered(device));
    plan.state.hosts.push_back(std::move(state));
    plan.devices.push_back(std::move(*devices));
  }
  return plan;
}

Result<> make_files(const Plan& plan, const Artefacts& artefacts, const Layout& layout) {
  auto initrd =
      std::async(std::launch::async, [&] { return write_initrd(artefacts, layout.initrd()); });
  Result<> made;
  for (size_t i = 0; i < plan.devices.size() && made; ++i) {
    made = make_root(artefacts, plan.state.hosts[i].image,
                     layout.root_overlay(static_cast<int>(i) + 1));
    for (const PlacedDevice& device : plan.devices[i])
      if (made && device.drive) made = make_drive(*device.drive);
  }
  const Result<> written = initrd.get();
  return made ? written : made;
}

// Waits until all hosts are up. The first that fails takes the others down with it: their boots end
// at once, and its error is the one that counts.
Result<> await_hosts(const std::vector<std::unique_ptr<Host>>& hosts, Steps& steps) {
  std::mutex mutex;
  Result<> result;
  const auto wait = [&](const Host& host) {
    const auto up = host.machine().wait_until_up(Deadline(kBoot));
    if (up) return steps.done(fmt::format("{} (node {}) is up", host.name(), host.node()));
    const std::lock_guard lock(mutex);
    if (!result) return;
    result = up;
    for (const auto& other : hosts) (void)other->machine().power_off();
  };
  std::vector<std::future<void>> waits;
  for (const auto& host : hosts)
    waits.push_back(std::async(std::launch::async, [&wait, &host = *host] { wait(host); }));
  for (auto& one : waits) one.get();
  return result;
}

Result<Owner> this_process() {
  const auto process = Processes().identify(::getpid());
  if (!process) return fail(ErrorClass::Failure, "/proc does not know this process");
  return Owner{*process, ::program_invocation_short_name};
}

// Clears away what was left of a lab; State if somebody counts on it. The caller has its lock.
Result<> make_room(const std::string& name, const Layout& layout, Steps& steps) {
  const Standing standing = standing_of(name);
  if (!standing.there) return {};
  if (standing.in_use)
    return fail(ErrorClass::State,
                "lab '{0}' is up already ({1}): 'pcilend-lab down --lab {0}' ends it", name,
                standing.text);
  PCILEND_TRY(clear(layout));
  steps.done(fmt::format("what was left of lab '{}' is cleared away ({})", name, standing.text));
  return {};
}

}  // namespace

Lab::Lab(State state, Layout layout, Transcript::Sink sink)
    : state_(std::move(state)),
      layout_(std::move(layout)),
      fabric_(layout_.fabric_control()),
      rogue_(layout_.rogue_control()),
      transcript_(std::make_unique<Transcript>(std::move(sink))) {
  const Kernel* kernel = find_kernel(state_.kernel);
  patience = kernel ? kernel->patience : 1;
  for (size_t i = 0; i < state_.hosts.size(); ++i)
    hosts_.push_back(std::make_unique<Host>(
        Machine(static_cast<int>(i) + 1, layout_, state_.hosts[i]), *transcript_));
}

Lab::Lab(Lab&& other) noexcept
    : state_(std::move(other.state_)),
      layout_(std::move(other.layout_)),
      fabric_(std::move(other.fabric_)),
      rogue_(std::move(other.rogue_)),
      transcript_(std::move(other.transcript_)),
      hosts_(std::move(other.hosts_)),
      owned_(std::exchange(other.owned_, false)) {}

Lab::~Lab() {
  // A process that this one has forked is not its owner.
  if (!owned_ || state_.owner->process.pid != ::getpid()) return;
  if (auto ended = end_lab_of(state_.owner->process, state_.name); !ended)
    transcript_->say("lab", '!', ended.error().message);
}

Result<Lab> Lab::up(const Options& options, const Progress& progress, Transcript::Sink sink) {
  Steps steps(progress);
  PCILEND_TRY(options.check());
  const auto artefacts = Artefacts::find(options.kernel);
  if (!artefacts) return tl::unexpected(artefacts.error());
  if (options.nodes() > 1 && !fs::exists(artefacts->fabric()))
    return fail(ErrorClass::NotFound, "{} is not there: run 'make build'", artefacts->fabric());
  const auto owner = this_process();
  if (!owner) return tl::unexpected(owner.error());
  auto made = plan(options, *artefacts, Layout::of(options.name));
  if (!made) return tl::unexpected(made.error());
  made->state.owner = *owner;
  const Layout layout = Layout::of(options.name);
  auto watcher = Watcher::start(*artefacts, options.name, owner->process);
  if (!watcher) return tl::unexpected(watcher.error());
  auto lock = LabLock::take(layout.lock(), Deadline(kLock));
  if (!lock) return tl::unexpected(lock.error());
  PCILEND_TRY(make_room(options.name, layout, steps));

  Lab lab(made->state, layout, std::move(sink));
  const auto start = [&]() -> Result<> {
    // Makes the directory.
    PCILEND_TRY(save(made->state, layout));
    PCILEND_TRY(watcher->give_to(layout));
    PCILEND_TRY(make_files(*made, *artefacts, layout));
    steps.done("drives and initramfs are made");
    if (const int nodes = options.nodes(); nodes > 1) {
      PCILEND_TRY(start_fabric(*artefacts, layout, options));
      steps.done(
          fmt::format("the fabric listens: {} adapters", nodes * (nodes - 1) * options.paths));
    }
    for (const auto& host : lab.hosts_) PCILEND_TRY(host->machine().power_on());
    return await_hosts(lab.hosts_, steps);
  };
  if (auto started = start(); !started) {
    (void)end(layout, std::move(*lock));
    return tl::unexpected(started.error());
  }
  lab.owned_ = true;
  return lab;
}

Result<Lab> Lab::attach(const std::string& name, Transcript::Sink sink) {
  PCILEND_TRY(check_lab_name(name));
  const Layout layout = Layout::of(name);
  auto state = load_state(name, layout);
  if (!state) return tl::unexpected(state.error());
  return Lab(std::move(*state), layout, std::move(sink));
}

Result<bool> Lab::down(const std::string& name) {
  return end_lab(name);
}

Result<> Lab::keep() {
  if (!owned_) return {};
  const auto lock = LabLock::take(layout_.lock(), Deadline(kLock));
  if (!lock) return tl::unexpected(lock.error());
  const auto state = load_state(state_.name, layout_);
  if (!state) return tl::unexpected(state.error());
  if (state->owner != state_.owner)
    return fail(ErrorClass::State, "lab '{}' is not this process's any more", state_.name);
  State kept = state_;
  kept.owner.reset();
  PCILEND_TRY(save(kept, layout_));
  state_ = std::move(kept);
  owned_ = false;
  return dismiss_watcher(layout_);
}

Result<Host*> Lab::host(std::string_view host_name) {
  return parse_host(host_name, hosts()).map([this](int number) { return &host(number); });
}

bool Lab::fabric_runs() const {
  return Processes().find(layout_.fabric_pid()).has_value();
}

Result<> Lab::update(const Progress& progress) {
  Steps steps(progress);
  const auto artefacts = Artefacts::find(fs::path(state_.bin) / "pcilend-lab", state_.kernel);
  if (!artefacts) return tl::unexpected(artefacts.error());
  const auto release = kernel_release(*artefacts);
  if (!release) return tl::unexpected(release.error());
  const auto files = payload_files(*artefacts, *release);
  if (!files) return tl::unexpected(files.error());
  // For hosts that are switched on later. (One that is reset gets the old ones: its QEMU has them.)
  PCILEND_TRY(write_initrd(*artefacts, layout_.initrd()));

  for (const auto& host : hosts_) {
    if (host->machine().condition() != Condition::Running) {
      steps.done(fmt::format("{} is not running: it gets them when it boots", host->name()));
      continue;
    }
    for (const PayloadFile& file : *files) {
      // A running agent goes on with the program it was started from.
      PCILEND_TRY(host->run({"mkdir", "-p", fs::path(file.path).parent_path()}));
      PCILEND_TRY(host->put(file.source, file.path));
    }
    PCILEND_TRY(
        host->run("depmod -a && for m in pcilend_shadow pcilend_mdev pcilend; do "
                  "if [ -d /sys/module/$m ]; then rmmod $m || exit 1; fi; done && "
                  "modprobe pcilend node=$(sed 's/.*lab.node=//; s/ .*//' /proc/cmdline) && "
                  "for m in pcilend_shadow pcilend_mdev; do "
                  "if modinfo $m >/dev/null 2>&1; then modprobe $m || exit 1; fi; done"));
    steps.done(fmt::format("{} has the new programs and modules", host->name()));
  }
  return {};
}

Result<> eventually(std::string_view what, std::chrono::milliseconds within,
                    const std::function<bool()>& condition) {
  if (wait_until(Deadline(within), condition, 50ms)) return {};
  return fail(ErrorClass::State, "not within {} ms: {}", (within * patience.load()).count(), what);
}

}  // namespace pcilend::lab
