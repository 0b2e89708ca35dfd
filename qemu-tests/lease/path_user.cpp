// SPDX-License-Identifier: GPL-2.0-or-later
// A client of a shared drive over several paths that knows what must be on the medium: it writes
// its range in versions, and compares what it reads. What it says, for scenarios:
//
//   clients LEASE:KEY ...   from now on these may have queues, and no others
//   wrote V                all of version V is confirmed
//   pass V path P up N repeated R    it has been read again, and was right
//   checked V              the same, without writing, as SIGUSR1 has asked for (SIGUSR2: goes on)
//   wrong ...              it was not: it ends with status 1
//
// --check V only reads: of a run that was killed each sector may have V or the version behind it.
#include <CLI/CLI.hpp>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

#include "bench/bench.h"
#include "pcilend/nvme/path_queue.h"
#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

using namespace std::chrono_literals;

constexpr size_t kSector = 512;
constexpr const char* kOwner = "path-user";

volatile std::sig_atomic_t stopped = 0;
volatile std::sig_atomic_t paused = 0;

struct Arguments {
  std::string function;
  std::vector<std::string> paths;
  std::vector<std::string> formers;
  uint64_t block = 0;
  uint32_t commands = 64;
  size_t size = kSector;
  uint32_t depth = 8;
  uint64_t from = 0;  // the version that is there
  std::optional<uint64_t> check;
  bool staged = false;
  bool careless = false;
  long patience = 60000;
};

template <class... Args>
void say(fmt::format_string<Args...> text, Args&&... args) {
  fmt::print("{}\n", fmt::format(text, std::forward<Args>(args)...));
  std::fflush(stdout);
}

// One without the rule of path_queue.h, for scenarios that show that they find what it prevents: it
// takes queues for deleted that it has only lost.
class Careless final : public Drive {
 public:
  explicit Careless(std::unique_ptr<Drive> drive) : drive_(std::move(drive)) {}
  [[nodiscard]] Device& device() override { return drive_->device(); }
  [[nodiscard]] Queues& queues() override { return drive_->queues(); }
  [[nodiscard]] const ControllerInfo& info() const override { return drive_->info(); }
  [[nodiscard]] Result<std::vector<uint32_t>> namespaces() override { return drive_->namespaces(); }
  [[nodiscard]] Result<NamespaceInfo> name_space(uint32_t id) override {
    return drive_->name_space(id);
  }
  [[nodiscard]] Result<Health> health() override { return drive_->health(); }
  [[nodiscard]] Result<NamespaceChanges> changes() override { return drive_->changes(); }
  [[nodiscard]] std::optional<uint16_t> vector() const override { return drive_->vector(); }
  [[nodiscard]] bool lost() const override { return drive_->lost(); }
  [[nodiscard]] ClientName client() const override { return drive_->client(); }
  Result<> clear(const ClientName&) override { return {}; }
  void leave() override { drive_->leave(); }

 private:
  std::unique_ptr<Drive> drive_;
};

class User {
 public:
  explicit User(const Arguments& arguments) : arguments_(arguments) {}

  Result<> open() {
    const auto id = parse_function_id(arguments_.function);
    if (!id) return tl::unexpected(id.error());
    std::vector<std::string> adapters = arguments_.paths;
    if (adapters.empty()) adapters.emplace_back();
    std::vector<PathOpener> openers;
    for (const std::string& adapter : adapters) openers.push_back(opener(*id, adapter));
    PathsOptions options;
    for (const std::string& former : arguments_.formers) {
      ClientName& client = options.former.emplace_back();
      if (std::sscanf(former.c_str(), "%" SCNu32 ":%" SCNu64, &client.lease, &client.key) != 2)
        return fail(ErrorClass::Usage, "{} is no LEASE:KEY", former);
    }
    options.remember = [](const std::vector<ClientName>& clients) -> Result<> {
      std::string all = "clients";
      for (const ClientName& client : clients)
        all += fmt::format(" {}:{}", client.lease, client.key);
      say("{}", all);
      return {};
    };
    options.tell = [](const std::string& text) { say("# {}", text); };
    auto paths = Paths::open(std::move(openers), options);
    if (!paths) return tl::unexpected(std::move(paths).error());
    paths_ = std::move(*paths);
    const auto space = paths_->drive().name_space(1);
    if (!space) return tl::unexpected(space.error());
    space_ = *space;
    auto queue = PathQueue::create(*paths_,
                                   {.name_space = space_,
                                    .depth = arguments_.depth,
                                    .transfer = arguments_.size,
                                    .staged = arguments_.staged ? arguments_.size : 0},
                                   [this](uint32_t tag, std::span<std::byte> to) {
                                     fill(to, commands_[tag], version_);
                                     return true;
                                   });
    if (!queue) return tl::unexpected(std::move(queue).error());
    queue_ = std::move(*queue);
    commands_.resize(arguments_.depth);
    paths_->start();
    return {};
  }
  ~User() {
    if (paths_) paths_->stop();
  }

  Result<> work() {
    version_ = arguments_.from;
    while (stopped == 0) {
      if (paused == 0) {
        ++version_;
        PCILEND_TRY(all(Work::Write));
        say("wrote {}", version_);
      }
      const bool was_paused = paused != 0;
      PCILEND_TRY(all(Work::Read));
      if (was_paused) {
        say("checked {}", version_);
        std::this_thread::sleep_for(20ms);
      } else {
        say("pass {} path {} up {} repeated {}", version_, queue_->path().value_or(9), paths_->up(),
            queue_->repeated());
      }
    }
    return {};
  }
  Result<> check() {
    version_ = *arguments_.check;
    PCILEND_TRY(all(Work::Read));
    say("found {} sectors of version {}, {} of the next, {} with all-ones", counts_[0], version_,
        counts_[1], counts_[2]);
    return {};
  }

 private:
  PathOpener opener(FunctionId id, const std::string& adapter) const {
    return {adapter,
            [id, adapter,
             careless = arguments_.careless](uint64_t key) -> Result<std::unique_ptr<Drive>> {
              const auto host = ThisHost::open();
              if (!host) return tl::unexpected(host.error());
              auto drive = Drive::join(
                  *host, id, kOwner,
                  {.slice = uint64_t{1} << 20, .key = key, .adapter = adapter, .patience = 5s});
              if (!drive || !careless) return drive;
              return std::make_unique<Careless>(std::move(*drive));
            }};
  }

  [[nodiscard]] uint32_t blocks() const {
    return static_cast<uint32_t>(arguments_.size / space_.block_bytes);
  }
  void fill(std::span<std::byte> bytes, uint32_t command, uint64_t version) const {
    const uint64_t first =
        arguments_.block * space_.block_bytes + uint64_t{command} * arguments_.size;
    for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
      const uint64_t word = content(version, first + at);
      std::memcpy(bytes.data() + at, &word, sizeof word);
    }
  }

  Result<> all(Work work) {
    std::vector<uint32_t> free;
    for (uint32_t tag = 0; tag < arguments_.depth; ++tag) free.push_back(tag);
    for (uint32_t next = 0; next < arguments_.commands || queue_->under_way() != 0;) {
      while (next < arguments_.commands && !free.empty()) {
        const uint32_t tag = free.back();
        free.pop_back();
        commands_[tag] = next++;
        if (work == Work::Read) queue_->spoil(tag);
        PCILEND_TRY(
            queue_->submit(tag, {.work = work,
                                 .block = arguments_.block + uint64_t{commands_[tag]} * blocks(),
                                 .blocks = blocks(),
                                 .bytes = arguments_.size}));
      }
      const auto done = queue_->wait(std::chrono::milliseconds(arguments_.patience));
      if (!done) return tl::unexpected(done.error());
      if (done->status != 0)
        return fail(ErrorClass::Failure, "command {}: status {:#x}", commands_[done->tag],
                    done->status);
      if (work == Work::Read) PCILEND_TRY(compare(done->tag));
      free.push_back(done->tag);
    }
    return {};
  }

  Result<> compare(uint32_t tag) {
    const auto data = queue_->data(tag);
    for (size_t at = 0; at < data.size(); at += kSector) {
      const auto sector = data.subspan(at, kSector);
      const auto found = version_of(commands_[tag], at, sector);
      const bool next = arguments_.check && found == version_ + 1;
      if (arguments_.check && is_ones(sector)) {
        ++counts_[2];
        continue;
      }
      if (found != version_ && !next)
        return fail(ErrorClass::Failure,
                    "wrong command {} byte {}: it has {}, and version {} is there", commands_[tag],
                    at,
                    is_ones(sector) ? "all-ones"
                    : found         ? fmt::format("version {}", *found)
                                    : "nothing known",
                    version_);
      ++counts_[next ? 1 : 0];
    }
    return {};
  }
  // Some of its data was made up where nothing answered the drive: content has no such word.
  static bool is_ones(std::span<const std::byte> bytes) {
    for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, sizeof word);
      if (word == ~uint64_t{0}) return true;
    }
    return false;
  }
  // Of those that it can be.
  [[nodiscard]] std::optional<uint64_t> version_of(uint32_t command, size_t at,
                                                   std::span<const std::byte> sector) const {
    std::vector<std::byte> wanted(arguments_.size);
    for (uint64_t back = 0; back < 6 && back <= version_ + 1; ++back) {
      const uint64_t version = version_ + 1 - back;
      fill(wanted, command, version);
      if (std::memcmp(wanted.data() + at, sector.data(), sector.size()) == 0) return version;
    }
    return std::nullopt;
  }

  Arguments arguments_;
  NamespaceInfo space_;
  std::unique_ptr<Paths> paths_;
  std::unique_ptr<PathQueue> queue_;
  std::vector<uint32_t> commands_;  // by tag
  uint64_t version_ = 0;
  uint64_t counts_[3] = {};
};

Result<> run(const Arguments& arguments) {
  User user(arguments);
  PCILEND_TRY(user.open());
  return arguments.check ? user.check() : user.work();
}

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("A client of a shared drive over several paths, for scenarios.");
  app.add_option("FUNCTION", arguments.function)->required();
  app.add_option("--path", arguments.paths, "adapters")->delimiter(',');
  app.add_option("--formers", arguments.formers, "LEASE:KEY")->delimiter(',');
  app.add_option("--block", arguments.block);
  app.add_option("--commands", arguments.commands);
  app.add_option("--size", arguments.size);
  app.add_option("--depth", arguments.depth);
  app.add_option("--from", arguments.from);
  app.add_option("--check", arguments.check);
  app.add_option("--patience", arguments.patience);
  app.add_flag("--staged", arguments.staged);
  app.add_flag("--careless", arguments.careless);
  CLI11_PARSE(app, argc, argv);
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int) { stopped = 1; });
  std::signal(SIGUSR1, [](int) { paused = 1; });
  std::signal(SIGUSR2, [](int) { paused = 0; });
  const auto done = run(arguments);
  if (done) return 0;
  say("{}", done.error().message);
  return static_cast<int>(done.error().kind);
}

}  // namespace
}  // namespace pcilend::nvme

int main(int argc, char** argv) {
  return pcilend::nvme::main(argc, argv);
}
