// SPDX-License-Identifier: GPL-2.0-or-later
// Fixture: a borrowed function in the hands of a plain user of VFIO (qemu-tests/vfio), which is not
// QEMU.
#pragma once

#include <optional>
#include <string>

#include "testing/two_hosts.h"

namespace pcilend::scenarios {

inline constexpr const char* kClient = "/usr/lib/pcilend-lab/vfio-client";

// The USB controllers have 16 interrupts each: MSI-X and INTx; MSI and INTx.
class VfioClient : public TwoHosts {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(TwoHosts::SetUp());
    ASSERT_OK(lender().run(fmt::format("pcilend connect {}", borrower().node())));
  }

  void TearDown() override {
    if (!lab_) return;
    if (!uuid_.empty()) {
      const auto removed = borrower().exec(
          fmt::format("d=/sys/bus/mdev/devices/{}; [ ! -e $d ] || echo 1 >$d/remove", uuid_));
      EXPECT_OK(removed);
    }
    EXPECT_OK(lender().exec("pcilend unavailable --force " + address_));
    EXPECT_OK(lender().exec("pcilend remove " + address_));
    TwoHosts::TearDown();
  }

  // Lends that device of host1.
  void share(const std::string& device) {
    const auto address = lender().address(device);
    ASSERT_OK(address);
    address_ = *address;
    const auto offered = offer(lender(), address_);
    ASSERT_OK(offered);
    id_ = offered->at("id");
    uuid_ = offered->at("uuid");
    ASSERT_NO_FATAL_FAILURE(expect_state(borrower(), "available"));
  }
  // Has host2 make a mediated device of that UUID: of the function, or of that type of the adapter.
  [[nodiscard]] std::string make_device(const std::string& uuid) const {
    return fmt::format(
        "echo {} >/sys/bus/pcilend/devices/{}/mdev_supported_types/pcilend-function/create", uuid,
        id_);
  }
  static std::string kind(const std::string& name) {
    return "/sys/bus/pci/drivers/pcilend_mdev/*/mdev_supported_types/pcilend_mdev-" + name;
  }
  static std::string make_of_kind(const std::string& name, const std::string& uuid) {
    return fmt::format("echo {} >$(echo {})/create", uuid, kind(name));
  }
  static std::string remove_device(const std::string& uuid) {
    return fmt::format("echo 1 >/sys/bus/mdev/devices/{}/remove", uuid);
  }
  // Lends that device of host1; host2 has a mediated device of it, which has borrowed it.
  void lend(const std::string& device) {
    ASSERT_NO_FATAL_FAILURE(share(device));
    ASSERT_OK(borrower().run(make_device(uuid_)));
  }
  // Lends that device of host1 to a domain of host2, for VFIO.
  void lend_to_a_domain(const std::string& device) {
    ASSERT_NO_FATAL_FAILURE(share(device));
    ASSERT_OK(borrower().run(
        "pcilend borrow --frontend vfio --owner 5ca1ab1e-0000-4000-8000-000000000001 " + id_));
  }
  // Its PCI address there.
  [[nodiscard]] Result<std::string> place_on_borrower() const {
    const auto function = function_on(borrower(), id_);
    if (!function) return tl::unexpected(function.error());
    return function->at("virtual_bdf").get<std::string>();
  }
  // It is borrowed on host2, by that one.
  void expect_owner(const std::string& owner) const {
    const auto function = function_on(borrower(), id_);
    ASSERT_OK(function);
    EXPECT_EQ(function->at("state"), "borrowed");
    EXPECT_EQ(function->at("frontend"), "vfio");
    EXPECT_EQ(function->at("owner"), owner);
  }
  // How many mediated devices of that kind host2 can make.
  void expect_available(const std::string& name, const std::string& count) const {
    EXPECT_OK(
        borrower().until(fmt::format("[ $(cat {}/available_instances) = {} ]", kind(name), count)));
  }

  void expect_state(const lab::Host& host, const std::string& state) const {
    EXPECT_OK(await_state(host, id_, state));
  }

  [[nodiscard]] std::string client(const std::string& command) const {
    return fmt::format("{} {} {}", kClient, uuid_, command);
  }
  // A client that goes on, and has said that it is ready.
  void start_client(const std::string& command, std::optional<lab::Running>* client) const {
    auto running = borrower().start(this->client(command));
    ASSERT_OK(running);
    client->emplace(std::move(*running));
    ASSERT_OK(await_words(**client, "\"ready\":true"));
  }
  static Result<> await_words(const lab::Running& client, const std::string& words) {
    return lab::eventually("the client says " + words, lab::kPatience,
                           [&] { return client.output_so_far().find(words) != std::string::npos; });
  }

  std::string address_;
  std::string id_;
  std::string uuid_;
};

}  // namespace pcilend::scenarios
