// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/options.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "lab/deadline.h"

namespace pcilend::lab {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::string error_of(const Result<>& result) {
  EXPECT_FALSE(result);
  return result ? "" : result.error().message;
}

TEST(DeviceStrings, AreSplitAsQemuDoes) {
  const auto device = DeviceString::parse("nvme,serial=a,drive-size=256M,model=x,,y");
  ASSERT_TRUE(device);
  EXPECT_EQ(device->driver, "nvme");
  EXPECT_THAT(device->properties, ElementsAre(Pair("serial", "a"), Pair("model", "x,y")));
  EXPECT_EQ(device->drive_size, 256ULL << 20);
  EXPECT_EQ(device->text(), "nvme,serial=a,model=x,,y");
}

TEST(DeviceStrings, ADriverAloneIsEnough) {
  const auto device = DeviceString::parse("edu");
  ASSERT_TRUE(device);
  EXPECT_EQ(device->text(), "edu");
  EXPECT_FALSE(device->drive_size);
}

TEST(DeviceStrings, ErrorsNameTheMistake) {
  const auto error = [](std::string_view text) {
    const auto device = DeviceString::parse(text);
    EXPECT_FALSE(device) << text;
    return device ? std::string() : device.error().message;
  };
  EXPECT_EQ(error(""), "device '': '' is no driver; give it as in 'nvme,serial=a,drive-size=256M'");
  EXPECT_THAT(error("nvme serial=a"), HasSubstr("'nvme serial=a' is no driver"));
  EXPECT_EQ(error("nvme,serial"), "device 'nvme,serial': 'serial' is not PROPERTY=VALUE");
  EXPECT_EQ(error("nvme,=x"), "device 'nvme,=x': '=x' is not PROPERTY=VALUE");
  EXPECT_EQ(error("nvme,serial=a,serial=b"),
            "device 'nvme,serial=a,serial=b': 'serial' is given twice");
  EXPECT_THAT(error("nvme,drive-size=1M,drive-size=2M"), HasSubstr("given twice"));
  EXPECT_EQ(error("nvme,drive-size=much"),
            "device 'nvme,drive-size=much': 'much' is not a size: give it as 256M or 1G");
  EXPECT_EQ(error("nvme,drive=d,drive-size=1M"),
            "device 'nvme,drive=d,drive-size=1M': give drive or drive-size, not both");
}

TEST(DeviceStrings, MayAskForARootPort) {
  const auto device = DeviceString::parse("e1000e,root-port=on,mac=52:54:00:00:00:01");
  ASSERT_TRUE(device);
  EXPECT_EQ(device->root_port, true);
  EXPECT_EQ(device->text(), "e1000e,mac=52:54:00:00:00:01");
  EXPECT_EQ(DeviceString::parse("e1000e,root-port=off,bus=b")->root_port, false);
  const auto error = [](std::string_view text) {
    const auto bad = DeviceString::parse(text);
    EXPECT_FALSE(bad) << text;
    return bad ? std::string() : bad.error().message;
  };
  EXPECT_EQ(error("e1000e,root-port=yes"),
            "device 'e1000e,root-port=yes': root-port is on or off, not 'yes'");
  EXPECT_EQ(error("e1000e,root-port=on,bus=b"),
            "device 'e1000e,root-port=on,bus=b': give bus or root-port=on, not both");
  EXPECT_EQ(error("e1000e,addr=10,root-port=on"),
            "device 'e1000e,addr=10,root-port=on': give addr or root-port=on, not both");
  EXPECT_THAT(error("e1000e,root-port=on,root-port=on"), HasSubstr("given twice"));
}

TEST(ObjectStrings, HaveATypeAndAnId) {
  const auto object = ObjectString::parse("memory-backend-file,id=m,mem-path=/a,,b,size=1M");
  ASSERT_TRUE(object);
  EXPECT_EQ(object->id, "m");
  EXPECT_EQ(object->text, "memory-backend-file,id=m,mem-path=/a,,b,size=1M");
  const auto error = [](std::string_view text) {
    const auto bad = ObjectString::parse(text);
    EXPECT_FALSE(bad) << text;
    return bad ? std::string() : bad.error().message;
  };
  EXPECT_EQ(error(""),
            "object '': '' is no type; give it as in 'memory-backend-ram,id=m,size=16M'");
  EXPECT_THAT(error("id=m"), HasSubstr("'id=m' is no type"));
  EXPECT_EQ(error("memory-backend-ram,size"),
            "object 'memory-backend-ram,size': 'size' is not PROPERTY=VALUE");
  for (const char* bad : {"memory-backend-ram", "memory-backend-ram,id=", "rng-random,x=y"})
    EXPECT_EQ(error(bad), fmt::format("object '{}': it has no id; give it as in "
                                      "'memory-backend-ram,id=m,size=16M'",
                                      bad));
  EXPECT_EQ(error("rng-random,id=a,id=b"), "object 'rng-random,id=a,id=b': 'id' is given twice");
}

TEST(Sizes, HaveUnits) {
  EXPECT_EQ(parse_size("512"), 512U);
  EXPECT_EQ(parse_size("1k"), 1024U);
  EXPECT_EQ(parse_size("256M"), 256ULL << 20);
  EXPECT_EQ(parse_size("2G"), 2ULL << 30);
  EXPECT_EQ(parse_size("1T"), 1ULL << 40);
  for (const char* bad : {"", "M", "0", "-1", "1X", "1.5G", "99999999999999999999", "8388608T"})
    EXPECT_FALSE(parse_size(bad)) << bad;
  EXPECT_EQ(parse_size("100").error().message, "'100' is not a whole number of 512-byte sectors");
}

TEST(Hosts, AreNamedFromOne) {
  EXPECT_EQ(host_name(3), "host3");
  EXPECT_EQ(node_id(1), 4);
  EXPECT_EQ(node_id(3), 12);
  EXPECT_EQ(parse_host("host2", 2), 2);
  for (const char* bad : {"", "host", "host0", "host3", "host02", "2", "Host1", "host1 ", "host-1"})
    EXPECT_FALSE(parse_host(bad, 2)) << bad;
  EXPECT_EQ(parse_host("lender", 2).error().message,
            "no host 'lender': this lab has host1 to host2");
  EXPECT_EQ(parse_host("host2", 1).error().message, "no host 'host2': this lab has host1");
}

TEST(LabOptions, TakeMemoryAndDevices) {
  Options options;
  ASSERT_TRUE(options.add_memory("host2:4096"));
  ASSERT_TRUE(options.add_device("host1:e1000e,mac=52:54:00:00:00:01"));
  ASSERT_TRUE(options.add_image("host2:installed"));
  EXPECT_EQ(options.image_of(1), Image::Usual);
  EXPECT_EQ(options.image_of(2), Image::Installed);
  options.images.clear();
  EXPECT_EQ(options.memory_of(1), kDefaultMemory);
  EXPECT_EQ(options.memory_of(2), 4096);
  options.kernel = "6.12-debug";
  EXPECT_EQ(options.memory_of(1), kDefaultMemory + find_kernel("6.12-debug")->memory);
  EXPECT_EQ(options.memory_of(2), 4096 + find_kernel("6.12-debug")->memory);
  EXPECT_EQ(options.devices.at(0).host, 1);
  EXPECT_EQ(options.devices.at(0).device.text(), "e1000e,mac=52:54:00:00:00:01");
  EXPECT_TRUE(options.check());
}

TEST(LabOptions, ErrorsNameTheMistake) {
  Options options;
  EXPECT_EQ(error_of(options.add_memory("2048")),
            "--memory '2048': give it as HOST:MIB, as in host1:2048");
  EXPECT_EQ(error_of(options.add_memory("host1:")),
            "--memory 'host1:': give it as HOST:MIB, as in host1:2048");
  EXPECT_EQ(error_of(options.add_memory("host1:2G")),
            "--memory 'host1:2G': '2G' is not a number of MiB, 512 or more");
  EXPECT_EQ(error_of(options.add_memory("host1:64")),
            "--memory 'host1:64': '64' is not a number of MiB, 512 or more");
  EXPECT_EQ(error_of(options.add_image("host1")),
            "--image 'host1': give it as HOST:IMAGE, as in host2:installed");
  EXPECT_EQ(error_of(options.add_image("host1:quick")),
            "--image 'host1:quick': image 'quick': it is usual or installed");
  EXPECT_EQ(error_of(options.add_memory("lender:2048")),
            "--memory 'lender:2048': no host 'lender': hosts are named host1 to host13");
  EXPECT_EQ(error_of(options.add_device("nvme")),
            "--device 'nvme': give it as HOST:DEVICE, as in "
            "host1:nvme,serial=a,drive-size=256M");
  EXPECT_EQ(error_of(options.add_object("memory-backend-ram,id=m")),
            "--object 'memory-backend-ram,id=m': give it as HOST:OBJECT, as in "
            "host1:memory-backend-ram,id=m,size=16M");
  EXPECT_EQ(error_of(options.add_object("host1:memory-backend-ram")),
            "object 'memory-backend-ram': it has no id; give it as in "
            "'memory-backend-ram,id=m,size=16M'");
}

TEST(LabOptions, AdaptersAreNamedByPath) {
  const auto one = parse_adapters("switchtec");
  ASSERT_TRUE(one);
  Options options;
  options.adapters = *one;
  EXPECT_EQ(options.adapter_of(1), Adapter::Switchtec);
  EXPECT_EQ(options.adapter_of(4), Adapter::Switchtec);
  const auto two = parse_adapters("amd,switchtec");
  ASSERT_TRUE(two);
  options.adapters = *two;
  EXPECT_EQ(options.adapter_of(1), Adapter::Amd);
  EXPECT_EQ(options.adapter_of(2), Adapter::Switchtec);
  EXPECT_EQ(error_of(options.check()), "--adapter: 2 kinds for --paths 1");
  options.paths = 2;
  EXPECT_TRUE(options.check());
  options.adapters = *one;
  options.rogue = true;
  EXPECT_TRUE(options.check()) << "the rogue node drives them, too";
  for (const char* bad : {"", "plx", "amd,plx"}) {
    const auto refused = parse_adapters(bad);
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().message.substr(0, 10), "--adapter ");
  }
}

TEST(LabOptions, AreCheckedAsAWhole) {
  const auto with = [](auto change) {
    Options options;
    change(options);
    return error_of(options.check());
  };
  EXPECT_EQ(with([](Options& o) { o.hosts = 0; }), "--hosts 0: a lab has 1 to 13 hosts");
  EXPECT_EQ(with([](Options& o) { o.hosts = 14; }), "--hosts 14: a lab has 1 to 13 hosts");
  EXPECT_EQ(with([](Options& o) {
              o.hosts = 7;
              o.paths = 2;
              o.rogue = true;
            }),
            "--paths 2: 1 to 4, and a host has room for 12 adapters, the rogue's included");
  EXPECT_EQ(with([](Options& o) { o.paths = 0; }).substr(0, 9), "--paths 0");
  EXPECT_EQ(with([](Options& o) { o.kernel = "6.1"; }),
            "--kernel '6.1': it is 6.12, 6.12-debug or backports");
  EXPECT_EQ(with([](Options& o) { ASSERT_TRUE(o.add_memory("host3:1024")); }),
            "--memory 'host3:1024': the lab has hosts host1 to host2");
  EXPECT_EQ(with([](Options& o) { ASSERT_TRUE(o.add_image("host3:installed")); }),
            "--image 'host3:installed': the lab has hosts host1 to host2");
  EXPECT_EQ(with([](Options& o) {
              ASSERT_TRUE(o.add_image("host2:installed"));
              o.kernel = "6.12-debug";
            }),
            "--image 'host2:installed': the kernel 6.12-debug has no AppArmor: use another one");
  EXPECT_EQ(with([](Options& o) { ASSERT_TRUE(o.add_device("host3:edu")); }),
            "--device 'host3:edu': the lab has hosts host1 to host2");
  EXPECT_EQ(with([](Options& o) { ASSERT_TRUE(o.add_object("host3:rng-random,id=r")); }),
            "--object 'host3:rng-random,id=r': the lab has hosts host1 to host2");
  EXPECT_EQ(with([](Options& o) { ASSERT_TRUE(o.add_object("host1:rng-random,id=qmp")); }),
            "--object 'host1:rng-random,id=qmp': the id 'qmp' is the lab's own");
  EXPECT_EQ(with([](Options& o) {
              ASSERT_TRUE(o.add_object("host1:rng-random,id=r"));
              ASSERT_TRUE(o.add_object("host2:rng-random,id=r"));
              ASSERT_TRUE(o.add_object("host1:rng-egd,id=r"));
            }),
            "host1: two objects have the id 'r'");
  EXPECT_THAT(with([](Options& o) { o.name = "../x"; }), HasSubstr("lab name '../x'"));
}

TEST(LabNames, AreFileNames) {
  for (const char* good : {"default", "a", "test-1.x_y", "0"}) EXPECT_TRUE(check_lab_name(good));
  for (const char* bad : {"", ".", "..", ".x", "-x", "a/b", "a b", "a,b"})
    EXPECT_FALSE(check_lab_name(bad)) << bad;
  EXPECT_FALSE(check_lab_name(std::string(33, 'x')));
}

TEST(Iommus, HaveNames) {
  for (const Iommu iommu : {Iommu::Intel, Iommu::Amd, Iommu::Off})
    EXPECT_EQ(parse_iommu(to_string(iommu)), iommu);
  EXPECT_EQ(parse_iommu("arm").error().message, "--iommu 'arm': it is intel, amd or off");
}

TEST(Kernels, AreThoseOfTheImage) {
  std::ifstream file(PCILEND_SOURCE_DIR "/qemu-tests/image/kernels.txt");
  std::vector<std::string> names;
  for (std::string line; std::getline(file, line);)
    if (line.find('#') != 0) names.push_back(line.substr(0, line.find(' ')));
  ASSERT_GT(names.size(), 1U);
  for (const std::string& name : names) EXPECT_TRUE(find_kernel(name)) << name;
  const std::string last = names.back();
  names.pop_back();
  EXPECT_EQ(kernel_names(), fmt::format("{} or {}", fmt::join(names, ", "), last));
}

TEST(LabOptions, TheDebugKernelTakesItsTime) {
  const Kernel* debug = find_kernel("6.12-debug");
  ASSERT_NE(debug, nullptr);
  EXPECT_GT(debug->patience, find_kernel("6.12")->patience);
  EXPECT_EQ(find_kernel("6.12-"), nullptr);

  patience = debug->patience;
  const Deadline long_deadline(std::chrono::seconds(10));
  patience = 1;
  const Deadline deadline(std::chrono::seconds(10));
  EXPECT_GT(long_deadline.milliseconds(), (debug->patience - 1) * 10'000);
  EXPECT_LE(deadline.milliseconds(), 10'000);
}

}  // namespace
}  // namespace pcilend::lab
