// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "scenarios/lending/shared_lease.h"

namespace pcilend::scenarios {

inline constexpr const char* kListener = "/usr/lib/pcilend-lab/interrupt-user";

// The drive of host1, of which clients have interrupts and nothing else.
class SharedDrive {
 public:
  explicit SharedDrive(lab::Lab& lab) : lab_(lab) {}
  // Managed, for so many clients with so many interrupts each.
  void begin(const std::string& policy) {
    const auto address = lender().address(1);
    ASSERT_OK(address);
    const auto offered = offer(lender(), *address);
    ASSERT_OK(offered);
    id_ = offered->at("id");
    auto user = ShareUser::start(lender(), "manage", id_, policy, kListener);
    ASSERT_OK(user);
    ASSERT_OK(user->await("serving"));
    manager_.emplace(std::move(*user));
    for (int host : {2, 3}) ASSERT_OK(await_state(lab_.host(host), id_, "borrowed"));
  }
  void end() {
    ASSERT_OK(manager_->kill());
    ASSERT_OK(await_state(lender(), id_, "available"));
    ASSERT_OK(lender().run("pcilend unavailable " + id_));
    ASSERT_OK(lender().run("pcilend remove " + id_));
    for (int host : {1, 2, 3})
      EXPECT_OK(lab_.host(host).run(fmt::format("! grep pcilend-{} /proc/interrupts", id_)));
  }
  [[nodiscard]] Result<ShareUser> client(int host, const std::string& steps) const {
    return ShareUser::start(lab_.host(host), "join", id_, steps, kListener);
  }
  [[nodiscard]] const ShareUser& manager() const { return *manager_; }
  [[nodiscard]] const std::string& id() const { return id_; }

 private:
  [[nodiscard]] const lab::Host& lender() const { return lab_.host(1); }

  lab::Lab& lab_;
  std::string id_;
  std::optional<ShareUser> manager_;
};

}  // namespace pcilend::scenarios
