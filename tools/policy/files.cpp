// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/policy/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

namespace pcilend::policy {
namespace {

constexpr const char* kLock = "/run/pcilend/policy.lock";
constexpr std::chrono::milliseconds kLockPoll{50};

// One file alone, such as filters.json; it may have more in it than filters.
Result<Config> load_file(const Environment& environment, const char* file) {
  if (!environment.exists(file)) return Config{};
  const auto text = environment.read(file);
  if (!text) return tl::unexpected(text.error());
  return parse_config(file, *text);
}

auto is_filter(FilterKind kind, const Pattern& pattern) {
  return [kind, &pattern](const Filter& f) { return f.kind == kind && f.pattern == pattern; };
}

auto is_kind(const std::string& name) {
  return [&name](const KindEntry& k) { return k.name == name; };
}

// Where a file other than kinds.json has it; empty: nowhere.
Result<std::string> kind_by_hand(const Environment& environment, const std::string& name) {
  const auto others = load_config(environment, kKindsFile);
  if (!others) return tl::unexpected(others.error());
  const auto found = std::find_if(others->kinds.begin(), others->kinds.end(), is_kind(name));
  return found == others->kinds.end() ? std::string() : found->place;
}

auto is_borrow(const Uuid& uuid) {
  return [&uuid](const BorrowEntry& b) { return b.uuid == uuid; };
}

// Refuses what a file other than borrow.json has.
Result<> check_not_by_hand(const Environment& environment, const Uuid& uuid) {
  const auto others = load_config(environment, kBorrowFile);
  if (!others) return tl::unexpected(others.error());
  const auto found = std::find_if(others->borrow.begin(), others->borrow.end(), is_borrow(uuid));
  if (found == others->borrow.end()) return {};
  return fail(ErrorClass::State, "it is written by hand in {}: change it there", found->place);
}

}  // namespace

Result<UniqueFd> lock_policy(const Environment& environment,
                             const std::function<void(std::chrono::milliseconds)>& sleep) {
  const std::filesystem::path file = environment.path(kLock);
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  if (error) return fail_errno(file.parent_path().native(), error.value());
  // Who may open it may hold it up.
  UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return fail_errno(file.native());
  if (::fchmod(fd.get(), 0600) < 0) return fail_errno(file.native());
  for (std::chrono::milliseconds waited{0}; ::flock(fd.get(), LOCK_EX | LOCK_NB) < 0;
       waited += kLockPoll) {
    if (errno != EWOULDBLOCK && errno != EINTR) return fail_errno(file.native());
    if (waited >= kLockLimit)
      return fail(ErrorClass::State,
                  "another pcilend has been restoring or changing the configuration for {} s: "
                  "'fuser {}' says which; end it, or try again later",
                  kLockLimit.count(), kLock);
    sleep(kLockPoll);
  }
  return fd;
}

Result<> put_filter(const Environment& environment, const Filter& filter) {
  auto config = load_file(environment, kFiltersFile);
  if (!config) return tl::unexpected(std::move(config).error());
  const auto same = std::find_if(config->filters.begin(), config->filters.end(),
                                 is_filter(filter.kind, filter.pattern));
  if (same == config->filters.end())
    config->filters.push_back(filter);
  else
    *same = filter;
  return write_config(environment, kFiltersFile, *config);
}

Result<> remove_filter(const Environment& environment, FilterKind kind, const Pattern& pattern) {
  auto config = load_file(environment, kFiltersFile);
  if (!config) return tl::unexpected(std::move(config).error());
  if (std::erase_if(config->filters, is_filter(kind, pattern)) > 0)
    return write_config(environment, kFiltersFile, *config);
  const auto all = load_config(environment);
  if (!all) return tl::unexpected(all.error());
  const auto elsewhere =
      std::find_if(all->filters.begin(), all->filters.end(), is_filter(kind, pattern));
  if (elsewhere != all->filters.end())
    return fail(ErrorClass::NotFound, "{} is written by hand in {}: remove it there",
                to_string(pattern), elsewhere->place);
  return fail(ErrorClass::NotFound, "no {} filter {}: 'pcilend {}-filter --list' shows them",
              name_of(kind), to_string(pattern), name_of(kind));
}

Result<> put_kind(const Environment& environment, const KindEntry& kind) {
  const auto by_hand = kind_by_hand(environment, kind.name);
  if (!by_hand) return tl::unexpected(by_hand.error());
  if (!by_hand->empty())
    return fail(ErrorClass::State, "{} is written by hand in {}: change it there", kind.name,
                *by_hand);
  auto config = load_file(environment, kKindsFile);
  if (!config) return tl::unexpected(std::move(config).error());
  const auto same = std::find_if(config->kinds.begin(), config->kinds.end(), is_kind(kind.name));
  if (same == config->kinds.end())
    config->kinds.push_back(kind);
  else
    *same = kind;
  return write_config(environment, kKindsFile, *config);
}

Result<bool> has_kind(const Environment& environment, const std::string& name) {
  const auto by_hand = kind_by_hand(environment, name);
  if (!by_hand) return tl::unexpected(by_hand.error());
  if (!by_hand->empty())
    return fail(ErrorClass::NotFound, "{} is written by hand in {}: remove it there", name,
                *by_hand);
  const auto config = load_file(environment, kKindsFile);
  if (!config) return tl::unexpected(config.error());
  return std::any_of(config->kinds.begin(), config->kinds.end(), is_kind(name));
}

Result<> remove_kind(const Environment& environment, const std::string& name) {
  auto config = load_file(environment, kKindsFile);
  if (!config) return tl::unexpected(std::move(config).error());
  std::erase_if(config->kinds, is_kind(name));
  return write_config(environment, kKindsFile, *config);
}

Result<> put_borrow(const Environment& environment, const BorrowEntry& entry) {
  PCILEND_TRY(check_not_by_hand(environment, entry.uuid));
  auto config = load_file(environment, kBorrowFile);
  if (!config) return tl::unexpected(std::move(config).error());
  const auto same =
      std::find_if(config->borrow.begin(), config->borrow.end(), is_borrow(entry.uuid));
  if (same == config->borrow.end())
    config->borrow.push_back(entry);
  else
    *same = entry;
  return write_config(environment, kBorrowFile, *config);
}

Result<bool> remove_borrow(const Environment& environment, const Uuid& uuid) {
  PCILEND_TRY(check_not_by_hand(environment, uuid));
  auto config = load_file(environment, kBorrowFile);
  if (!config) return tl::unexpected(std::move(config).error());
  if (std::erase_if(config->borrow, is_borrow(uuid)) == 0) return false;
  PCILEND_TRY(write_config(environment, kBorrowFile, *config));
  return true;
}

}  // namespace pcilend::policy
