// SPDX-License-Identifier: GPL-2.0-or-later
// `pcilend nvme`: disks that pcilend-nvme-disk makes and serves. This starts and ends that program,
// by systemd where it is, and reads what it says of itself (disk/record.h).
#include <algorithm>

#include "commands.h"
#include "device_use.h"
#include "disk/record.h"
#include "disks.h"

namespace pcilend {
namespace {

using nvme::DiskRecord;
using std::chrono::seconds;

constexpr const char* kProgram = "/usr/libexec/pcilend/pcilend-nvme-disk";
constexpr const char* kSystemd = "/run/systemd/system";
constexpr const char* kUblk = "/dev/ublk-control";
constexpr std::chrono::milliseconds kStep{100};
constexpr uint32_t kAttachSeconds = 60;
// It writes what is in caches, and waits for what is under way.
constexpr uint32_t kDetachSeconds = 180;
constexpr uint32_t kSecondsMax = 3600;
constexpr uint32_t kQueuesMax = 64;
constexpr uint32_t kDepthMax = 256;

std::string unit_of(FunctionId function) {
  return fmt::format("pcilend-nvme-disk@{}.service", to_string(function));
}

Result<> check_number(std::string_view name, const std::optional<uint32_t>& value, uint32_t least,
                      uint32_t most) {
  if (!value || (*value >= least && *value <= most)) return {};
  return fail(ErrorClass::Usage, "{} {}: give {} to {}", name, *value, least, most);
}

// Between the commas.
std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  for (size_t at = 0; !list.empty() && at != std::string::npos;) {
    const size_t end = list.find(',', at);
    names.push_back(list.substr(at, end - at));
    at = end == std::string::npos ? end : end + 1;
  }
  return names;
}

// What its program is called with, besides the function.
Result<std::vector<std::string>> program_words(const Options& options) {
  PCILEND_TRY(check_number("--namespace", options.name_space, 1, 0xfffffffe));
  PCILEND_TRY(check_number("--queues", options.queues, 1, kQueuesMax));
  PCILEND_TRY(check_number("--depth", options.depth, 1, kDepthMax));
  PCILEND_TRY(check_number("--patience", options.patience, 0, kSecondsMax));
  PCILEND_TRY(check_number("--timeout", options.timeout, 1, kSecondsMax));
  PCILEND_TRY(nvme::check_writers(options.alone, options.read_only, options.shared_fs));
  if (!options.adapter.empty() && options.alone)
    return fail(ErrorClass::Usage,
                "--adapter with --alone: a drive that is had alone goes over one path, the best");
  for (const std::string& adapter : names_in(options.adapter))
    if (!parse_pci_address(adapter))
      return fail(ErrorClass::Usage,
                  "'{}' is no adapter: give PCI addresses as 'pcilend show' has "
                  "them (0000:00:04.0,0000:00:05.0)",
                  adapter);
  std::vector<std::string> words;
  const auto add = [&](const char* name, const std::optional<uint32_t>& value) {
    if (value) words.insert(words.end(), {name, std::to_string(*value)});
  };
  add("--namespace", options.name_space);
  add("--queues", options.queues);
  add("--depth", options.depth);
  add("--patience", options.patience);
  if (!options.adapter.empty()) words.insert(words.end(), {"--path", options.adapter});
  if (options.alone) words.emplace_back("--alone");
  if (options.read_only) words.emplace_back("--read-only");
  if (options.shared_fs) words.emplace_back("--shared-fs");
  return words;
}

Result<FunctionId> one_function(const Options& options) {
  if (options.words.size() != 1)
    return fail(ErrorClass::Usage, "name one function by its id (40001), as in 'pcilend list'");
  auto id = parse_function_id(options.words.front());
  if (!id)
    return fail(ErrorClass::Usage, "'{}' is no function: give its id (40001), as in 'pcilend list'",
                options.words.front());
  return id;
}

// Those of its program; one that it does not know is a bug of ours.
ErrorClass kind_of(const DiskRecord& record) {
  const bool known = record.error_kind >= static_cast<int>(ErrorClass::Failure) &&
                     record.error_kind <= static_cast<int>(ErrorClass::Unsupported);
  return known ? static_cast<ErrorClass>(record.error_kind) : ErrorClass::Failure;
}

// What a program that was started after `before` says.
Result<DiskRecord> await_disk(const Host& host, FunctionId function, uint64_t before,
                              seconds patience) {
  const auto begin = host.now();
  for (;;) {
    auto record = nvme::read_record(host.environment, function);
    const bool said = record && record->start != before;
    if (said && record->state == "ready") return record;
    if (said && !record->error.empty()) {
      // What is said now need not be listed, unless there is a disk to be seen to.
      if (!record->number) (void)nvme::remove_record(host.environment, *record);
      return tl::unexpected(Error{kind_of(*record), std::move(record->error)});
    }
    const auto waited = std::chrono::duration_cast<seconds>(host.now() - begin);
    if (waited >= patience)
      return fail(ErrorClass::Unreachable,
                  "{} has no disk after {} s; it is still tried: 'pcilend nvme list' shows it, and "
                  "'pcilend nvme detach {}' ends that",
                  to_string(function), patience.count(), to_string(function));
    host.progress(fmt::format("{}: {}, {} s", to_string(function),
                              said ? record->state : "waiting for its program", waited.count()));
    host.sleep(kStep);
  }
}

Result<> load_ublk(const Host& host) {
  if (host.environment.exists(kUblk)) return {};
  const auto loaded = host.run_program({"modprobe", "ublk_drv"});
  if (loaded) return {};
  return fail(ErrorClass::Unsupported,
              "this host's kernel has no ublk, by which the disk would be made "
              "(CONFIG_BLK_DEV_UBLK): {}",
              loaded.error().message);
}

Result<> start_program(const Host& host, FunctionId function, std::vector<std::string> words) {
  if (host.environment.exists(kSystemd)) {
    PCILEND_TRY(host.environment.replace_file(nvme::options_path(function),
                                              fmt::format("OPTIONS={}\n", fmt::join(words, " "))));
    return host.run_program({"systemctl", "--no-block", "start", unit_of(function)});
  }
  words.insert(words.begin(), {kProgram, to_string(function), "--daemon"});
  return host.run_program(words);
}

Result<Answer> attach(Host& host, const Options& options) {
  const auto function = one_function(options);
  if (!function) return tl::unexpected(function.error());
  auto words = program_words(options);
  if (!words) return tl::unexpected(std::move(words).error());
  const auto former = nvme::read_record(host.environment, *function);
  if (!former && former.error().kind != ErrorClass::NotFound) return tl::unexpected(former.error());
  if (former && is_served(host.environment, *former))
    return fail(ErrorClass::State, "{} is attached already{}: see 'pcilend nvme list'",
                to_string(*function), former->number ? ", as /dev/" + former->disk() : "");
  PCILEND_TRY(load_ublk(host));
  PCILEND_TRY(start_program(host, *function, std::move(*words)));
  auto record = await_disk(host, *function, former ? former->start : 0,
                           seconds(options.timeout.value_or(kAttachSeconds)));
  if (!record) return tl::unexpected(std::move(record).error());
  return DisksAnswer{{std::move(*record)}};
}

Error nothing_attached(const std::string& name) {
  return {ErrorClass::NotFound,
          fmt::format("nothing is attached as {}: see 'pcilend nvme list'", name)};
}

// By force also one whose record can't be read: `pcilend-nvme-disk --remove` finds what there is
// of it.
Result<DiskRecord> find_disk_of(const Host& host, FunctionId function, bool force) {
  auto record = nvme::read_record(host.environment, function);
  if (record) return record;
  if (record.error().kind == ErrorClass::NotFound)
    return tl::unexpected(nothing_attached(to_string(function)));
  if (!force) return record;
  DiskRecord unreadable;
  unreadable.function = function;
  return unreadable;
}

// By its function, or by its name: /dev/ublkb0.
Result<DiskRecord> find_disk(const Host& host, const Options& options) {
  if (options.words.size() != 1)
    return fail(ErrorClass::Usage,
                "name one disk, as in 'pcilend nvme list': 40001 or /dev/ublkb0");
  std::string name = options.words.front();
  if (const auto function = parse_function_id(name))
    return find_disk_of(host, *function, options.force);
  if (name.starts_with("/dev/")) name.erase(0, 5);
  auto records = nvme::read_records(host.environment);
  if (!records) return tl::unexpected(std::move(records).error());
  const auto found = std::ranges::find_if(
      *records, [&](const DiskRecord& record) { return record.number && record.disk() == name; });
  if (found == records->end()) return tl::unexpected(nothing_attached(options.words.front()));
  return std::move(*found);
}

Result<> check_disk_unused(const Host& host, const DiskRecord& record, bool force) {
  if (!record.number || force) return {};
  const auto reasons = find_disk_use(host.environment, record.disk());
  if (!reasons) return tl::unexpected(reasons.error());
  if (reasons->empty()) return {};
  return fail(ErrorClass::State, "{}, or use --force and lose what is not written",
              reasons->front());
}

// A program of the disk runs, or systemd is not done with its unit. The record is read each time:
// systemd may have been starting another program when it was told to stop.
Result<bool> is_ending(const Host& host, FunctionId function) {
  const auto record = nvme::read_record(host.environment, function);
  if (record && is_served(host.environment, *record)) return true;
  if (!host.environment.exists(kSystemd)) return false;
  auto state = host.read_program(
      {"systemctl", "show", "--property=ActiveState", "--value", unit_of(function)});
  if (!state) return tl::unexpected(std::move(state).error());
  while (state->ends_with('\n')) state->pop_back();
  return *state != "inactive" && *state != "failed";
}

Result<Answer> detach(Host& host, const Options& options) {
  PCILEND_TRY(check_number("--timeout", options.timeout, 1, kSecondsMax));
  const auto record = find_disk(host, options);
  if (!record) return tl::unexpected(record.error());
  PCILEND_TRY(check_disk_unused(host, *record, options.force));
  const std::string name = to_string(record->function);
  // systemd may be about to start it again: a stop job, once it is there, keeps it from that.
  if (host.environment.exists(kSystemd))
    PCILEND_TRY(host.run_program({"systemctl", "--no-block", "stop", unit_of(record->function)}));
  else if (is_served(host.environment, *record))
    PCILEND_TRY(host.run_program({"kill", "-TERM", std::to_string(record->pid)}));
  const auto begin = host.now();
  const seconds patience(options.timeout.value_or(kDetachSeconds));
  for (;;) {
    const auto ending = is_ending(host, record->function);
    if (!ending) return tl::unexpected(ending.error());
    if (!*ending) break;
    const auto waited = std::chrono::duration_cast<seconds>(host.now() - begin);
    if (waited >= patience)
      return fail(ErrorClass::Unreachable, "{} is still being ended after {} s", name,
                  patience.count());
    host.progress(fmt::format("{}: ending, {} s", name, waited.count()));
    host.sleep(kStep);
  }
  // One whose program has died, or has not come to the end.
  if (host.environment.exists(nvme::record_path(record->function)))
    PCILEND_TRY(host.run_program({kProgram, name, "--remove"}));
  return NothingAnswer{};
}

Result<Answer> list(Host& host, const Options& options) {
  if (!options.words.empty())
    return fail(ErrorClass::Usage, "nvme list: what is '{}'? It takes no words",
                options.words.front());
  auto disks = find_disks(host.environment);
  if (!disks) return tl::unexpected(std::move(disks).error());
  return DisksAnswer{std::move(*disks)};
}

struct Action {
  std::string_view name;
  Result<Answer> (*run)(Host&, const Options&);
};

constexpr Action kActions[] = {{"attach", attach}, {"detach", detach}, {"list", list}};

}  // namespace

Result<Answer> command_nvme(Host& host, const Options& options) {
  const std::string& name = options.targets.front();
  const auto* const action = std::find_if(std::begin(kActions), std::end(kActions),
                                          [&](const Action& a) { return a.name == name; });
  if (action == std::end(kActions))
    return fail(ErrorClass::Usage, "nvme {}: there are attach, detach and list", name);
  return action->run(host, options);
}

}  // namespace pcilend
