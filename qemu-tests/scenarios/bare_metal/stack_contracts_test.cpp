// SPDX-License-Identifier: GPL-2.0-or-later
// What stacks that were written for other mediated devices do with those of a kind, in the order
// in which they do it (docs/stacks.md): with sysfs and VFIO alone, and with UUIDs of their own.
#include <set>

#include "main_job/admin_steps.h"
#include "testing/asserts.h"
#include "testing/suite_lab.h"
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

class StackContracts;

struct Stack {
  const char* name;
  void (StackContracts::*use)();
};

constexpr const char* kClient = "/usr/lib/pcilend-lab/vfio-client";
constexpr const char* kKind = "8000:00:01.0";  // storage, on every host
constexpr const char* kName = "Borrowed storage controller";
constexpr int kDrives = 2;

/*
 *   host1 (lender)      host2 (borrower)
 *   nvme a, b ═════════ mediated devices of a kind, made as the stack makes them
 *             ═════════ host3: borrows one now and then
 */
class StackContracts : public testing::TestWithParam<Stack> {
 public:
  static lab::Host& lender() { return lab_->host(1); }
  static lab::Host& host() { return lab_->host(2); }
  static lab::Host& other() { return lab_->host(3); }

  // Of drives, on the bus on which the stack looks for it.
  static std::string type(const char* bus = "/sys/bus/pci/devices") {
    return fmt::format("{}/{}/mdev_supported_types/pcilend_mdev-storage", bus, kKind);
  }
  static std::string text(const std::string& file) {
    const auto read = host().run("cat " + file);
    EXPECT_OK(read);
    return read ? read->substr(0, read->find('\n')) : "";
  }
  static std::string some_uuid() { return text("/proc/sys/kernel/random/uuid"); }
  static std::string device(const std::string& uuid) { return "/sys/bus/mdev/devices/" + uuid; }
  static int available() { return std::atoi(text(type() + "/available_instances").c_str()); }
  static void expect_available(int count) {
    EXPECT_OK(host().until(fmt::format("[ $(cat {}/available_instances) = {} ]", type(), count)));
  }
  static void make(const std::string& uuid, const std::string& below = type()) {
    ASSERT_OK(host().run(fmt::format("echo {} >{}/create", uuid, below)));
    ASSERT_OK(host().run(fmt::format("[ -e {} ]", device(uuid))));
  }
  static void remove(const std::string& uuid) {
    ASSERT_OK(host().run(fmt::format("echo 1 >{}/remove", device(uuid))));
    EXPECT_OK(host().run(fmt::format("[ ! -e {} ]", device(uuid))));
  }
  static std::string client(const std::string& uuid, const char* command) {
    return fmt::format("{} {} {}", kClient, uuid, command);
  }
  static void use(const std::string& uuid) {
    const auto said = host().json(client(uuid, "nvme"));
    ASSERT_OK(said);
    EXPECT_EQ(said->at("serials").size(), 12U);
  }
  // A client that goes on, and has said that it is ready.
  static void start(const std::string& uuid, const char* command,
                    std::optional<lab::Running>* running) {
    auto started = host().start(client(uuid, command));
    ASSERT_OK(started);
    running->emplace(std::move(*started));
    ASSERT_OK(lab::eventually("the client is ready", lab::kPatience, [&] {
      return (*running)->output_so_far().find("\"ready\":true") != std::string::npos;
    }));
  }
  // The function that the device has; "": none.
  static std::string function_of(const std::string& uuid) {
    const auto list = host().json("pcilend list --json");
    EXPECT_OK(list);
    if (!list) return "";
    for (const auto& function : list->at("functions"))
      if (function.at("owner") == "mdev:" + uuid) return function.at("id");
    return "";
  }
  static void expect_all_free() {
    for (const std::string& id : ids_) EXPECT_OK(await_state(lender(), id, "available"));
    expect_available(kDrives);
    EXPECT_OK(host().run("[ -z \"$(ls /sys/bus/mdev/devices)\" ]"));
    expect_nothing_mapped(host());
  }

  void as_proxmox();
  void as_kubevirt();
  void as_incus();
  void as_ovirt();
  void as_nova();
  void as_seller();

 protected:
  static std::vector<std::string> ids_;

  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "stacks";
    options.hosts = 3;
    for (const char* id : {"a", "b"})
      ASSERT_OK(options.add_device(fmt::format("host1:nvme,id={0},serial={0},drive-size=16M", id)));
    ASSERT_OK(start_lab(options, lab_));
    for (const lab::Host* borrower : {&host(), &other()})
      ASSERT_OK(lender().run(fmt::format("pcilend connect {}", borrower->node())));
    for (const char* id : {"a", "b"}) {
      const auto address = lender().address(id);
      ASSERT_OK(address);
      const auto offered = offer(lender(), *address);
      ASSERT_OK(offered);
      ids_.push_back(offered->at("id"));
    }
  }
  static void TearDownTestSuite() {
    ids_.clear();
    EXPECT_OK(end_lab(lab_));
  }

  void SetUp() override {
    ASSERT_TRUE(lab_) << "the lab did not start";
    for (int number = 1; number <= 3; ++number) ASSERT_OK(lab_->host(number).mark_log());
    expect_available(kDrives);
  }
  void TearDown() override {
    if (!lab_) return;
    EXPECT_OK(
        host().exec("pkill -KILL -x vfio-client; for d in /sys/bus/mdev/devices/*; do "
                    "[ ! -e $d ] || echo 1 >$d/remove; done"));
    for (const std::string& id : ids_) EXPECT_OK(other().exec("pcilend return " + id));
    expect_all_free();
    for (int number = 1; number <= 3; ++number) EXPECT_OK(lab_->host(number).check_log());
  }

  static std::optional<lab::Lab> lab_;
};

std::optional<lab::Lab> StackContracts::lab_;
std::vector<std::string> StackContracts::ids_;

// Its UUIDs are made of the device's index and the VM's number. It reuses what is there.
void StackContracts::as_proxmox() {
  const std::string uuid = "00000001-0000-0000-0000-000000000100";
  for (const char* file : {"name", "description", "device_api"})
    EXPECT_NE(text(type() + "/" + file), "") << file;
  ASSERT_GE(available(), 1);
  ASSERT_NO_FATAL_FAILURE(make(uuid));
  const std::string function = function_of(uuid);
  ASSERT_NE(function, "");
  std::optional<lab::Running> vm;
  ASSERT_NO_FATAL_FAILURE(start(uuid, "hold", &vm));
  ASSERT_OK(host().run("pkill -KILL -x vfio-client"));
  ASSERT_OK(vm->wait());
  use(uuid);
  EXPECT_EQ(function_of(uuid), function) << "the same as before";
  remove(uuid);
}

// It makes all that are available ahead, by one class of adapters; kubelet knows them by their
// IOMMU groups, and picks them by the name of their type. What it does not want any more it
// removes, whoever made it.
void StackContracts::as_kubevirt() {
  const int count = available();
  ASSERT_EQ(count, kDrives);
  std::vector<std::string> uuids;
  std::set<std::string> groups;
  for (int i = 0; i < count; ++i) {
    uuids.push_back(some_uuid());
    ASSERT_NO_FATAL_FAILURE(make(uuids.back(), type("/sys/class/mdev_bus")));
    EXPECT_EQ(text(device(uuids.back()) + "/mdev_type/name"), kName);
    const auto group =
        host().run(fmt::format("basename $(readlink {}/iommu_group)", device(uuids.back())));
    ASSERT_OK(group);
    groups.insert(group->substr(0, group->find('\n')));
    EXPECT_OK(host().run(fmt::format("[ -c /dev/vfio/{} ]", *groups.rbegin())));
  }
  EXPECT_EQ(groups.size(), uuids.size()) << "each has one of its own";
  expect_available(0);
  for (const std::string& id : ids_)
    EXPECT_EQ(text(fmt::format("/sys/bus/pcilend/devices/{}/mdev_supported_types/"
                               "pcilend-function/name",
                               id)),
              kName);

  std::optional<lab::Running> vm;
  ASSERT_NO_FATAL_FAILURE(start(uuids.front(), "let-go", &vm));
  for (const std::string& uuid : uuids) remove(uuid);
  const auto asked = vm->wait();
  ASSERT_OK(asked);
  EXPECT_EQ(asked->code, 0) << asked->err;
}

// A device for each start of a VM; none is left.
void StackContracts::as_incus() {
  for (int i = 0; i < 20; ++i) {
    const std::string uuid = some_uuid();
    ASSERT_NO_FATAL_FAILURE(make(uuid));
    if (i % 5 == 0) use(uuid);
    ASSERT_NO_FATAL_FAILURE(remove(uuid));
  }
  expect_all_free();
}

// By the class, there and back.
void StackContracts::as_ovirt() {
  const std::string uuid = some_uuid();
  ASSERT_NO_FATAL_FAILURE(make(uuid, type("/sys/class/mdev_bus")));
  use(uuid);
  ASSERT_OK(host().run(fmt::format("echo 1 >/sys/class/mdev_bus/{}/{}/remove", kKind, uuid)));
}

// What it tells Placement is existing + available: what this host can have, no more. It never
// removes a device.
void StackContracts::as_nova() {
  const auto existing = [&] {
    const auto count = host().run("ls /sys/bus/mdev/devices | wc -l");
    EXPECT_OK(count);
    return count ? std::atoi(count->c_str()) : -1;
  };
  EXPECT_EQ(existing() + available(), 2);
  const std::string uuid = some_uuid();
  ASSERT_NO_FATAL_FAILURE(make(uuid));
  EXPECT_EQ(existing(), 1);
  expect_available(1);

  std::optional<lab::Running> instance;
  ASSERT_NO_FATAL_FAILURE(start(uuid, "let-go", &instance));
  EXPECT_EQ(existing(), 1);
  expect_available(1);

  const std::string mine = function_of(uuid);
  const std::string free = mine == ids_[0] ? ids_[1] : ids_[0];
  ASSERT_OK(other().run("pcilend borrow --frontend vfio " + free));
  expect_available(0);
  EXPECT_EQ(existing(), 1);
  const auto none = host().exec(fmt::format("echo {} >{}/create", some_uuid(), type()));
  ASSERT_OK(none);
  EXPECT_NE(none->code, 0) << "there is none left";
  EXPECT_OK(host().run("dmesg | grep 'no function of kind storage is free'"));
  EXPECT_EQ(existing(), 1);
  ASSERT_OK(other().run("pcilend return " + free));
  expect_available(1);

  ASSERT_OK(host().run("pkill -KILL -x vfio-client"));
  ASSERT_OK(instance->wait());
  EXPECT_EQ(existing(), 1);
  expect_available(1);
  EXPECT_EQ(function_of(uuid), mine);
  use(uuid);
}

// What an administrator sells under a name of his own: a kind by label. The UUID that somebody has
// reserved a function for gets it, and nobody else.
void StackContracts::as_seller() {
  const auto address = lender().address("b");
  ASSERT_OK(address);
  ASSERT_OK(lender().run({"pcilend", "label", *address, "rack 7"}));
  ASSERT_OK(host().run("pcilend add-kind fast --device ::0108 --label 'rack 7'"));
  const auto place =
      host().run("dirname /sys/bus/pci/devices/*/mdev_supported_types/pcilend_mdev-fast");
  ASSERT_OK(place);
  const std::string fast = place->substr(0, place->find('\n')) + "/pcilend_mdev-fast";
  EXPECT_EQ(text(fast + "/name"), "Borrowed fast");
  ASSERT_OK(host().until(fmt::format("[ $(cat {}/available_instances) = 1 ]", fast)));

  const std::string uuid = some_uuid();
  ASSERT_OK(lender().run(fmt::format("pcilend reserve {} --for {} --ttl 600", *address, uuid)));
  const auto refused = other().exec("pcilend borrow --frontend vfio " + ids_[1]);
  ASSERT_OK(refused);
  EXPECT_NE(refused->err.find("is reserved for"), std::string::npos) << refused->err;
  const auto stranger = host().exec(fmt::format("echo {} >{}/create", some_uuid(), fast));
  ASSERT_OK(stranger);
  EXPECT_NE(stranger->code, 0) << "it is reserved for another one";
  ASSERT_NO_FATAL_FAILURE(make(uuid, fast));
  EXPECT_EQ(function_of(uuid), ids_[1]);
  use(uuid);

  const auto busy = host().exec("pcilend remove-kind fast");
  ASSERT_OK(busy);
  EXPECT_NE(busy->code, 0);
  EXPECT_NE(busy->err.find("mediated devices"), std::string::npos) << busy->err;
  ASSERT_NO_FATAL_FAILURE(remove(uuid));
  EXPECT_OK(host().run("pcilend remove-kind fast"));
  EXPECT_OK(host().run(fmt::format("[ ! -e {} ]", fast)));
  EXPECT_OK(lender().run({"pcilend", "reserve", *address, "--cancel"}));
  EXPECT_OK(lender().run({"pcilend", "label", *address, ""}));
}

TEST_P(StackContracts, Hold) {
  (this->*GetParam().use)();
}

INSTANTIATE_TEST_SUITE_P(Stacks, StackContracts,
                         testing::Values(Stack{"Proxmox", &StackContracts::as_proxmox},
                                         Stack{"KubeVirt", &StackContracts::as_kubevirt},
                                         Stack{"Incus", &StackContracts::as_incus},
                                         Stack{"oVirt", &StackContracts::as_ovirt},
                                         Stack{"Nova", &StackContracts::as_nova},
                                         Stack{"Seller", &StackContracts::as_seller}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace pcilend::scenarios
