// SPDX-License-Identifier: GPL-2.0-or-later
// A shared drive over several paths: the adapters that lead to its host. This process is a client
// of it over each, with queues over each that are made in advance (path_queue.h).
//
// A path that is lost is given up: another client of this process has the manager delete what the
// lost one had, over a path that works, and then the path is joined again. What was under way over
// it is unknown until that is confirmed.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "pcilend/nvme/drive.h"

namespace pcilend::nvme {

struct PathsOptions {
  // Of a run before this one: they are cleared before this one has queues.
  std::vector<ClientName> former;
  // Each time that a path is joined, before it gets queues: whether it leads to the drive that is
  // meant. This and remember() by another thread, once start() was called.
  std::function<Result<>(Drive&)> accept;
  // As whom this process may have queues from now on, for a run behind this one: before it gets
  // them, and when those of `former` have none any more.
  std::function<Result<>(const std::vector<ClientName>&)> remember;
  std::function<void(const std::string&)> tell;  // what becomes of paths, for people
  std::chrono::milliseconds step{100};  // between two attempts to get a path back, at first
};

// These adapters, if any are named, else all over which it is offered to this host now; none for a
// drive of this host.
Result<std::vector<std::string>> choose_paths(const ThisHost& host, FunctionId id,
                                              const std::vector<std::string>& named);

// How a path is joined, with that key.
struct PathOpener {
  std::string name;  // PCI address of its adapter
  std::function<Result<std::unique_ptr<Drive>>(uint64_t key)> open;
};

// As a client, over each of these adapters, or of this host's drive if there are none; with an
// interrupt where one reaches this host.
std::vector<PathOpener> join_openers(FunctionId id, std::string_view owner,
                                     const std::vector<std::string>& adapters, uint64_t slice,
                                     bool interrupt);

// A queue's part of one path, which goes when nobody uses it any more.
class PathLane {
 public:
  explicit PathLane(std::shared_ptr<Drive> drive, size_t path)
      : drive_(std::move(drive)), path_(path) {}
  PathLane(const PathLane&) = delete;
  PathLane& operator=(const PathLane&) = delete;
  virtual ~PathLane() = default;
  [[nodiscard]] Drive& drive() const { return *drive_; }
  [[nodiscard]] size_t path() const { return path_; }

 private:
  std::shared_ptr<Drive> drive_;
  size_t path_;
};

// Who has lanes.
class PathUser {
 public:
  virtual ~PathUser() = default;
  // All by the thread of Paths. One over that client;
  virtual Result<std::unique_ptr<PathLane>> make_lane(const std::shared_ptr<Drive>& drive,
                                                      size_t path) const = 0;
  // which is to be used, or to stand by;
  virtual void give(std::unique_ptr<PathLane> lane) = 0;
  // Paths::news() has changed.
  virtual void wake() = 0;
};

class Paths {
 public:
  // One at least must work now; else the error is that of the first.
  static Result<std::unique_ptr<Paths>> open(std::vector<PathOpener> openers,
                                             const PathsOptions& options);
  Paths(const Paths&) = delete;
  Paths& operator=(const Paths&) = delete;
  ~Paths();

  // From now on what is lost is got back, by a thread of its own, until stop(). Queues must be made
  // before, and destroyed after that.
  void start();
  void stop();
  // What that thread does, once. True if something has come of it.
  bool step();

  // One that works, for all but queues: of this thread before start() only.
  [[nodiscard]] Drive& drive() const;
  // The same at any time, as long as it is held, for one thread's changes() and name_space();
  // nothing if none works. Not to be held for long: a lost client ends when nobody has it.
  [[nodiscard]] std::shared_ptr<Drive> working() const;
  // That may have queues.
  [[nodiscard]] std::vector<ClientName> clients() const;
  // That work now, of all.
  [[nodiscard]] size_t up() const;
  [[nodiscard]] size_t count() const { return paths_.size(); }

  // For queues.
  Result<> add(PathUser& user);
  // Changes with what follows.
  [[nodiscard]] uint64_t news() const { return news_.load(std::memory_order_acquire); }
  // False once it is lost: lanes over it are to be retired.
  [[nodiscard]] bool works(const Drive& drive) const;
  // A client that has lost its path, or does not answer.
  void report(const Drive& drive, const std::string& why);
  // Nothing of what it had under way is done any more. Of one that was never reported: false.
  [[nodiscard]] bool cleared(const ClientName& client) const;
  void retire(std::unique_ptr<PathLane> lane);

 private:
  using Lock = std::unique_lock<std::mutex>;

  struct Path {
    PathOpener opener;
    std::shared_ptr<Drive> drive;  // while it works
    std::chrono::steady_clock::time_point retry;
    std::chrono::milliseconds delay{};
    std::string error;  // why it is not there, as it was told
  };

  Paths(std::vector<PathOpener> openers, PathsOptions options);

  Result<> begin();
  void keep();
  void note_losses();
  void lose(Path& path, const std::string& why);
  bool clear_lost(Lock& lock);
  bool join_missing(Lock& lock);
  Result<std::shared_ptr<Drive>> join_one(size_t number);
  static Result<std::vector<std::unique_ptr<PathLane>>> equip(const std::shared_ptr<Drive>& drive,
                                                              size_t number,
                                                              const std::vector<PathUser*>& users);
  void bury(Lock& lock);
  void changed();
  void tell(const std::string& text) const;
  [[nodiscard]] std::shared_ptr<Drive> any_drive() const;

  PathsOptions options_;
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  std::vector<Path> paths_;
  std::vector<PathUser*> users_;
  std::vector<ClientName> uncleared_;
  std::string uncleared_why_;                     // as it was told
  std::vector<std::shared_ptr<Drive>> retiring_;  // until no lane is used
  std::vector<std::unique_ptr<PathLane>> trash_;
  bool stopping_ = false;
  std::atomic<uint64_t> news_{0};
  std::thread thread_;
};

}  // namespace pcilend::nvme
