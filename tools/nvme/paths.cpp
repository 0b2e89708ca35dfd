// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/nvme/paths.h"

#include <sys/random.h>

#include <algorithm>

#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// Of the manager's, for each of a path's questions: the lender waits no longer for it either.
constexpr auto kPatience = 5s;
constexpr std::chrono::milliseconds kDelayMax = 1s;

Result<uint64_t> make_key() {
  uint64_t key = 0;
  while (key == 0)
    if (::getrandom(&key, sizeof key, 0) != sizeof key) return fail_errno("getrandom");
  return key;
}

}  // namespace

Result<std::vector<std::string>> choose_paths(const ThisHost& host, FunctionId id,
                                              const std::vector<std::string>& named) {
  for (auto at = named.begin(); at != named.end(); ++at)
    if (std::find(at + 1, named.end(), *at) != named.end())
      return fail(ErrorClass::Usage, "path {} is named twice: name each adapter once", *at);
  return named.empty() ? Lease::paths(host, id) : named;
}

std::vector<PathOpener> join_openers(FunctionId id, std::string_view owner,
                                     const std::vector<std::string>& adapters, uint64_t slice,
                                     bool interrupt) {
  std::vector<PathOpener> openers;
  const auto add = [&](const std::string& adapter) {
    const auto open = [id, owner = std::string(owner), adapter, slice,
                       interrupt](uint64_t key) -> Result<std::unique_ptr<Drive>> {
      // A socket of its own: this may be another thread.
      const auto host = ThisHost::open();
      if (!host) return tl::unexpected(host.error());
      JoinOptions wanted{.slice = slice,
                         .interrupt = interrupt,
                         .key = key,
                         .adapter = adapter,
                         .patience = kPatience};
      auto drive = Drive::join(*host, id, owner, wanted);
      if (drive || !interrupt) return drive;
      // On another host than the drive's, interrupts may be refused: it polls then.
      wanted.interrupt = false;
      return Drive::join(*host, id, owner, wanted);
    };
    openers.push_back({adapter.empty() ? to_string(id) : adapter, open});
  };
  for (const std::string& adapter : adapters) add(adapter);
  if (adapters.empty()) add({});
  return openers;
}

Paths::Paths(std::vector<PathOpener> openers, PathsOptions options)
    : options_(std::move(options)), uncleared_(options_.former) {
  for (PathOpener& opener : openers) paths_.push_back({std::move(opener), nullptr, {}, {}, {}});
}

Result<std::unique_ptr<Paths>> Paths::open(std::vector<PathOpener> openers,
                                           const PathsOptions& options) {
  std::unique_ptr<Paths> paths(new Paths(std::move(openers), options));
  PCILEND_TRY(paths->begin());
  return paths;
}

Result<> Paths::begin() {
  if (paths_.empty()) return fail(ErrorClass::Usage, "a drive without a path: name one");
  std::optional<Error> first;
  for (size_t number = 0; number < paths_.size(); ++number) {
    auto drive = join_one(number);
    if (drive)
      paths_[number].drive = std::move(*drive);
    else if (!first)
      first = drive.error();
  }
  const auto drive = any_drive();
  if (!drive) return tl::unexpected(*first);
  if (uncleared_.empty()) return {};
  for (const ClientName& client : uncleared_) PCILEND_TRY(drive->clear(client));
  uncleared_.clear();
  return options_.remember ? options_.remember(clients()) : Result<>();
}

Paths::~Paths() {
  stop();
  for (const auto& drive : retiring_) drive->leave();
  trash_.clear();
}

void Paths::start() {
  thread_ = std::thread([this] { keep(); });
}

void Paths::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Drive& Paths::drive() const {
  return *any_drive();
}

std::shared_ptr<Drive> Paths::any_drive() const {
  for (const Path& path : paths_)
    if (path.drive && !path.drive->lost()) return path.drive;
  for (const Path& path : paths_)
    if (path.drive) return path.drive;
  return nullptr;
}

std::shared_ptr<Drive> Paths::working() const {
  const std::lock_guard lock(mutex_);
  auto drive = any_drive();
  return drive && !drive->lost() ? drive : nullptr;
}

std::vector<ClientName> Paths::clients() const {
  const std::lock_guard lock(mutex_);
  std::vector<ClientName> all = uncleared_;
  for (const Path& path : paths_)
    if (path.drive) all.push_back(path.drive->client());
  return all;
}

size_t Paths::up() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(
      std::ranges::count_if(paths_, [](const Path& path) { return path.drive != nullptr; }));
}

Result<> Paths::add(PathUser& user) {
  const std::lock_guard lock(mutex_);
  Result<> none = fail(ErrorClass::Unreachable, "no path works");
  bool any = false;
  for (size_t number = 0; number < paths_.size(); ++number) {
    const auto drive = paths_[number].drive;
    if (!drive) continue;
    auto lanes = equip(drive, number, {&user});
    if (lanes) {
      user.give(std::move(lanes->front()));
      any = true;
      continue;
    }
    none = tl::unexpected(std::move(lanes).error());
    // One that has gone meanwhile is not missed while another one works.
    if (drive->lost())
      lose(paths_[number], none.error().message);
    else
      return none;
  }
  if (!any) return none;
  users_.push_back(&user);
  changed();
  return {};
}

bool Paths::works(const Drive& drive) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(paths_, [&](const Path& path) { return path.drive.get() == &drive; });
}

void Paths::report(const Drive& drive, const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    for (Path& path : paths_)
      if (path.drive.get() == &drive) lose(path, why);
  }
  wake_.notify_all();
}

bool Paths::cleared(const ClientName& client) const {
  const std::lock_guard lock(mutex_);
  const auto has = [&](const Path& path) { return path.drive && path.drive->client() == client; };
  return std::ranges::find(uncleared_, client) == uncleared_.end() &&
         std::ranges::none_of(paths_, has);
}

void Paths::retire(std::unique_ptr<PathLane> lane) {
  {
    const std::lock_guard lock(mutex_);
    trash_.push_back(std::move(lane));
  }
  wake_.notify_all();
}

void Paths::tell(const std::string& text) const {
  if (options_.tell) options_.tell(text);
}

void Paths::changed() {
  news_.fetch_add(1, std::memory_order_release);
  for (PathUser* user : users_) user->wake();
}

void Paths::lose(Path& path, const std::string& why) {
  tell(fmt::format("path {}: {}", path.opener.name, why));
  uncleared_.push_back(path.drive->client());
  retiring_.push_back(std::move(path.drive));
  path.drive = nullptr;
  path.delay = options_.step;
  path.retry = steady_clock::now() + path.delay;
  path.error.clear();
  changed();
}

void Paths::note_losses() {
  for (Path& path : paths_)
    if (path.drive && path.drive->lost())
      lose(path, "its link was lost, or the drive was reset by others");
}

void Paths::keep() {
  Lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    const bool more = step();
    lock.lock();
    if (!more && !stopping_) wake_.wait_for(lock, options_.step);
  }
}

// Clearing comes first: writes wait for it.
bool Paths::step() {
  Lock lock(mutex_);
  note_losses();
  bool any = clear_lost(lock);
  bury(lock);
  any |= join_missing(lock);
  return any;
}

// The lender may not know yet that a link is lost, nor may the manager: so it is asked, and its
// answer is what counts.
bool Paths::clear_lost(Lock& lock) {
  bool any = false;
  for (const ClientName& client : std::vector(uncleared_)) {
    const auto drive = any_drive();
    if (!drive || drive->lost() || stopping_) return any;
    lock.unlock();
    const auto cleared = drive->clear(client);
    lock.lock();
    if (!cleared) {
      if (uncleared_why_ != cleared.error().message) tell(cleared.error().message);
      uncleared_why_ = cleared.error().message;
      return any;
    }
    std::erase(uncleared_, client);
    any = true;
    changed();
  }
  return any;
}

bool Paths::join_missing(Lock& lock) {
  bool any = false;
  for (size_t number = 0; number < paths_.size(); ++number) {
    if (stopping_) return false;
    if (paths_[number].drive || steady_clock::now() < paths_[number].retry) continue;
    const std::vector<PathUser*> users = users_;
    lock.unlock();
    auto drive = join_one(number);
    auto lanes = drive ? equip(*drive, number, users) : tl::unexpected(drive.error());
    lock.lock();
    Path& path = paths_[number];
    // Each attempt that is refused is in the audit.
    path.delay = std::clamp(2 * path.delay, options_.step, std::max(options_.step, kDelayMax));
    path.retry = steady_clock::now() + path.delay;
    if (drive && lanes) {
      path.drive = std::move(*drive);
      for (size_t i = 0; i < users.size(); ++i) users[i]->give(std::move((*lanes)[i]));
      any = true;
      tell(fmt::format("path {}: is there again", path.opener.name));
      changed();
    } else if (path.error != lanes.error().message) {
      path.error = lanes.error().message;
      tell(fmt::format("path {}: {}", path.opener.name, path.error));
    }
  }
  return any;
}

// Whoever comes after this process must know of a client before that has queues.
Result<std::shared_ptr<Drive>> Paths::join_one(size_t number) {
  const auto key = make_key();
  if (!key) return tl::unexpected(key.error());
  auto opened = paths_[number].opener.open(*key);
  if (!opened) return tl::unexpected(std::move(opened).error());
  const std::shared_ptr<Drive> drive(std::move(*opened));
  if (options_.accept) PCILEND_TRY(options_.accept(*drive));
  if (options_.remember) {
    std::vector<ClientName> all = clients();
    all.push_back(drive->client());
    PCILEND_TRY(options_.remember(all));
  }
  return drive;
}

// All of them, or none.
Result<std::vector<std::unique_ptr<PathLane>>> Paths::equip(const std::shared_ptr<Drive>& drive,
                                                            size_t number,
                                                            const std::vector<PathUser*>& users) {
  std::vector<std::unique_ptr<PathLane>> lanes;
  for (const PathUser* user : users) {
    auto lane = user->make_lane(drive, number);
    if (!lane) {
      if (drive->lost()) drive->leave();
      return tl::unexpected(std::move(lane).error());
    }
    lanes.push_back(std::move(*lane));
  }
  return lanes;
}

// A client whose path is lost is left when no queue has a lane over it any more: its queues are
// deleted, or will be, as others ask for it; a mail over its own path would wait for that.
void Paths::bury(Lock& lock) {
  for (size_t i = 0; i < retiring_.size();) {
    const std::shared_ptr<Drive> drive = retiring_[i];
    const auto of_it = [&](const auto& lane) { return &lane->drive() == drive.get(); };
    const auto lanes = std::ranges::count_if(trash_, of_it);
    if (drive.use_count() != lanes + 2) {
      ++i;
      continue;
    }
    std::vector<std::unique_ptr<PathLane>> all;
    for (auto& lane : trash_)
      if (of_it(lane)) all.push_back(std::move(lane));
    std::erase_if(trash_, [](const auto& lane) { return !lane; });
    retiring_.erase(retiring_.begin() + static_cast<ptrdiff_t>(i));
    lock.unlock();
    drive->leave();
    all.clear();
    lock.lock();
    i = 0;
  }
}

}  // namespace pcilend::nvme
