// SPDX-License-Identifier: GPL-2.0-or-later
// save, restore and the filters, from the command line to the files and the kernel.
#include <gmock/gmock.h>

#include "host.h"

namespace pcilend::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Node 8 with a drive and a network card.
class PolicyTest : public HostTest {
 protected:
  void SetUp() override {
    HostTest::SetUp();
    plug("0000:00:05.0", "0x1b36", "0x0010", "0x010802");
    plug("0000:00:06.0", "0x8086", "0x10d3", "0x020000");
  }

  void plug(const std::string& bdf, const char* vendor, const char* device, const char* type) {
    install(bdf);
    const fs::path at = fs::path("sys/devices/pci0000:00") / bdf;
    write(at / "vendor", vendor);
    write(at / "device", device);
    write(at / "subsystem_vendor", "0x1af4");
    write(at / "subsystem_device", "0x1100");
    write(at / "class", type);
    write(at / "config", std::string(256, '\0'));
  }

  // pcilend_mdev.ko with a kind at that address, or with one more.
  void make_kind(const std::string& bdf, const std::string& text, int devices = 0) {
    const fs::path driver = "sys/bus/pci/drivers/pcilend_mdev";
    const fs::path type =
        driver / bdf / "mdev_supported_types" / ("pcilend_mdev-" + text.substr(0, text.find(' ')));
    write(driver / "new_kind", "");
    write(driver / "remove_kind", "");
    write(driver / bdf / "kind", text + "\n");
    write(type / "available_instances", "2\n");
    for (int i = 0; i < devices; ++i) write(type / "devices" / fmt::format("{}", i), "");
  }

  std::string file(const std::string& path) {
    return Environment(root_).read(path).value_or("no " + path);
  }

  void expect_golden(const std::string& name, const Outcome& result) {
    const std::string path = PCILEND_TESTDATA_DIR "/" + name;
    if (const char* const mode = std::getenv("PCILEND_GOLDEN");
        mode && mode == std::string("write"))
      std::ofstream(path) << result.out;
    std::ifstream golden(path);
    ASSERT_TRUE(golden) << path;
    EXPECT_EQ(result.out, std::string(std::istreambuf_iterator<char>(golden), {})) << path;
  }

  static constexpr const char* kConfig = R"({
    "connections": [4],
    "pins": [{"adapter": "0000:00:09.0", "node": 12}],
    "functions": [
      {"bdf": "0000:00:05.0", "device": "1b36:0010", "state": "available", "id": "80007",
       "label": "lab", "allow": [4]},
      {"bdf": "0000:00:07.0", "device": "1b36:0010", "state": "available"}
    ],
    "filters": {"add": [{"device": "8086:"}]},
    "kinds": [{"name": "fast", "device": "144d::0108", "label": "rack 7"},
              {"name": "slow", "label": "b"}]})";
};

TEST_F(PolicyTest, RestoreSaysWhatItDidAndWhatFailed) {
  write("etc/pcilend/10-lab.json", kConfig);
  make_kind("8000:00:1a.0", "slow label=a");
  const Outcome dry = run({"restore", "--dry-run"});
  EXPECT_THAT(kernel_.log, IsEmpty());
  expect_golden("restore-dry-run.txt", dry);
  const Outcome result = run({"restore", "--json"});
  EXPECT_EQ(result.status, 8);
  EXPECT_EQ(result.err,
            "pcilend: warning: failed to find 0000:00:07.0: there is no PCI function at this "
            "address (/etc/pcilend/10-lab.json: functions[1])\n");
  expect_golden("restore.json", result);
  EXPECT_THAT(kernel_.log, ElementsAre("connect 12 at 0000:00:09.0", "connect 4",
                                       "add 0000:00:05.0 as 80007 label lab allow 4",
                                       "add 0000:00:06.0 as 80001", "available 0000:00:05.0"));
}

TEST_F(PolicyTest, RestoredTwiceIsRestoredOnce) {
  write("etc/pcilend/10-lab.json", R"({"filters": {"available": [{"device": "1b36:"}]}})");
  expect_golden("restore.txt", run({"restore"}));
  const Outcome again = run({"restore"});
  EXPECT_EQ(again.status, 0);
  EXPECT_EQ(again.out, "nothing to do: all is as configured\n");
  EXPECT_EQ(run({"restore", "--device", "0000:00:06.0"}).out, again.out);
  EXPECT_EQ(run({"restore", "--device", "0000:00:1f.0"}).status,
            static_cast<int>(ErrorClass::NotFound));
  EXPECT_EQ(run({"restore", "--device", "nvme0"}).status, static_cast<int>(ErrorClass::Usage));
}

TEST_F(PolicyTest, ABadFileChangesNothing) {
  write("etc/pcilend/10-lab.json", R"({"connections": [4]})");
  write("etc/pcilend/20-lab.json", R"({"functions": [{"state": "availible"}]})");
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"restore"}, {"save"}, {"add-filter", "-d", "8086:"}}) {
    const Outcome result = run(arguments);
    EXPECT_EQ(result.status, static_cast<int>(ErrorClass::Usage));
    EXPECT_EQ(result.err,
              "pcilend: /etc/pcilend/20-lab.json: functions[0].state: 'availible' is not one of "
              "added, available\n");
  }
  EXPECT_THAT(kernel_.log, IsEmpty());
  EXPECT_FALSE(Environment(root_).exists("/etc/pcilend/filters.json"));
}

TEST_F(PolicyTest, ADiskInUseIsLeftAlone) {
  link("sys/class/block/nvme0n1", "sys/devices/pci0000:00/0000:00:05.0/nvme/nvme0/nvme0n1");
  write("sys/devices/pci0000:00/0000:00:05.0/nvme/nvme0/nvme0n1/dev", "259:0\n");
  write("proc/self/mountinfo", "40 22 259:0 / /data rw - ext4 /dev/nvme0n1 rw\n");
  const Outcome result = run({"available-filter", "-d", "1b36:0010"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out,
            "make 0000:00:05.0 available: left alone: /dev/nvme0n1 is mounted on /data: run "
            "'umount /data', or configure 'force'\n");
  EXPECT_THAT(kernel_.log, IsEmpty());
  EXPECT_EQ(run({"available-filter", "--force", "-d", "1b36:0010"}).out,
            "add 0000:00:05.0 as 80001: done\nmake 0000:00:05.0 available: done, though "
            "/dev/nvme0n1 is mounted on /data: run 'umount /data'\n");
}

TEST_F(PolicyTest, FiltersApplyAtOnceAndStay) {
  EXPECT_EQ(run({"available-filter", "-d", "::0108", "--label", "fast"}).out,
            "add 0000:00:05.0 as 80001: done\nmake 0000:00:05.0 available: done\n");
  EXPECT_EQ(run({"add-filter", "-s", "00:06.0", "-d", "8086:"}).out,
            "add 0000:00:06.0 as 80002: done\n");
  EXPECT_EQ(run({"unavailable-filter", "--slot", "00:05.0"}).out,
            "make 0000:00:05.0 unavailable: done\n");
  write("etc/pcilend/10-lab.json",
        R"({"filters": {"available": [{"slot": "00:10.*", "allow": [4, 12], "force": true}]}})");
  expect_golden("filters.txt", run({"available-filter", "--list"}));
  expect_golden("filters.json", run({"available-filter", "--list", "--json"}));
  EXPECT_EQ(run({"unavailable-filter", "--remove", "-s", "00:05.0"}).status, 0);
  EXPECT_EQ(run({"unavailable-filter", "--list"}).out, "");
  EXPECT_EQ(run({"restore"}).out, "make 0000:00:05.0 available: done\n");
  const Outcome missing = run({"add-filter", "--remove", "-d", "10de:"});
  EXPECT_EQ(missing.status, static_cast<int>(ErrorClass::NotFound));
}

TEST_F(PolicyTest, BadFiltersAreUsageErrors) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"add-filter"}, "give --device or --slot, or --list"},
      {{"add-filter", "--remove"}, "give --device or --slot"},
      {{"add-filter", "-d", "8086"}, "write [VENDOR]:[DEVICE]"},
      {{"add-filter", "-s", "00:20.0"}, "Invalid slot number"},
      {{"add-filter", "-s", "00:05.0", "--label", std::string(64, 'x')}, "at most 63"},
      {{"add-filter", "--list", "-s", "00:05.0"}, "--list stands alone"},
  };
  for (const auto& [arguments, text] : cases) {
    const Outcome result = run(arguments);
    EXPECT_EQ(result.status, static_cast<int>(ErrorClass::Usage)) << result.err;
    EXPECT_THAT(result.err, HasSubstr(text));
  }
  EXPECT_FALSE(Environment(root_).exists("/etc/pcilend"));
}

TEST_F(PolicyTest, KindsAreListedWithoutPcilend) {
  make_kind("8000:00:1a.0", "fast device=144d::0108 label=rack 7", 1);
  make_kind("8000:00:01.0", "storage device=::01xx");
  loaded_ = false;
  expect_golden("kinds.txt", run({"kinds"}));
  expect_golden("kinds.json", run({"kinds", "--json"}));
  EXPECT_EQ(run({"kinds", "-n", "-o", "name,devices"}).out, "storage  0\nfast     1\n");
  EXPECT_EQ(run({"kinds", "-o", "label"}).err,
            "pcilend: no column 'label': there are name,type,address,available,devices,matches\n");
}

TEST_F(PolicyTest, KindsNeedTheModule) {
  const Outcome result = run({"kinds"});
  EXPECT_EQ(result.status, static_cast<int>(ErrorClass::Unreachable));
  EXPECT_EQ(result.err, "pcilend: pcilend_mdev.ko is not loaded: modprobe pcilend_mdev\n");
  const Outcome added = run({"add-kind", "fast", "-d", "144d::0108"});
  EXPECT_EQ(added.status, 8);
  EXPECT_EQ(
      added.err,
      "pcilend: warning: failed to make kind 'fast device=144d::0108': pcilend_mdev.ko is not "
      "loaded: modprobe pcilend_mdev (/etc/pcilend/kinds.json)\n");
  EXPECT_THAT(file("/etc/pcilend/kinds.json"), HasSubstr(R"("name": "fast")"));
  EXPECT_EQ(run({"remove-kind", "slow"}).status, static_cast<int>(ErrorClass::Unreachable));
  EXPECT_EQ(run({"remove-kind", "fast"}).status, 0);
  EXPECT_EQ(file("/etc/pcilend/kinds.json"), "{}\n");
}

TEST_F(PolicyTest, KindsAreAddedAndRemovedAtOnceAndStay) {
  make_kind("8000:00:01.0", "storage device=::01xx");
  const Outcome added =
      run({"add-kind", "fast", "-d", "144d::0108", "--function", "40001", "--label", "rack 7"});
  EXPECT_EQ(added.status, 0) << added.err;
  EXPECT_EQ(added.out, "make kind 'fast device=144d::0108 function=40001 label=rack 7': done\n");
  EXPECT_EQ(file("/sys/bus/pci/drivers/pcilend_mdev/new_kind"),
            "fast device=144d::0108 function=40001 label=rack 7");
  make_kind("8000:00:1a.0", "fast device=144d::0108 function=40001 label=rack 7");
  EXPECT_EQ(run({"restore"}).out, "nothing to do: all is as configured\n");
  EXPECT_EQ(run({"add-kind", "fast", "--label", "b"}).out,
            "remove kind 'fast device=144d::0108 function=40001 label=rack 7': done\n"
            "make kind 'fast label=b': done\n");
  make_kind("8000:00:1a.0", "fast label=b");
  const Outcome removed = run({"remove-kind", "fast"});
  EXPECT_EQ(removed.status, 0) << removed.err;
  EXPECT_EQ(removed.out, "");
  EXPECT_EQ(file("/sys/bus/pci/drivers/pcilend_mdev/remove_kind"), "fast");
  EXPECT_EQ(file("/etc/pcilend/kinds.json"), "{}\n");
}

TEST_F(PolicyTest, AKindThatHasDevicesStaysInItsFile) {
  write("etc/pcilend/kinds.json", R"({"kinds": [{"name": "fast", "label": "a"}]})");
  make_kind("8000:00:1a.0", "fast label=a", 1);
  fs::remove(root_ / "sys/bus/pci/drivers/pcilend_mdev/remove_kind");
  fs::create_directory(root_ / "sys/bus/pci/drivers/pcilend_mdev/remove_kind");
  const Outcome result = run({"remove-kind", "fast"});
  EXPECT_EQ(result.status, static_cast<int>(ErrorClass::State));
  EXPECT_EQ(result.err,
            "pcilend: fast: mediated devices of it exist: remove them first: they are in "
            "/sys/bus/pci/drivers/pcilend_mdev/8000:00:1a.0/mdev_supported_types/pcilend_mdev-fast/"
            "devices\n");
  EXPECT_THAT(file("/etc/pcilend/kinds.json"), HasSubstr("fast"));
}

TEST_F(PolicyTest, KindsThatCanNotBeChangedAreRefused) {
  make_kind("8000:00:01.0", "storage device=::01xx");
  write("etc/pcilend/10-lab.json", R"({"kinds": [{"name": "mine", "label": "a"}]})");
  const std::vector<std::tuple<std::vector<std::string>, ErrorClass, std::string>> cases{
      {{"add-kind", "fast"},
       ErrorClass::Usage,
       "nothing to match: give --device, --function or --label"},
      {{"add-kind", "storage", "--label", "x"},
       ErrorClass::Usage,
       "command line: kinds[0].name: 'storage' is always there: choose another name"},
      {{"add-kind", "fast", "-d", "144d::01"},
       ErrorClass::Usage,
       "command line: kinds[0].device: '144d::01': device= wants "
       "[VENDOR]:[DEVICE][:CLASS[:INTERFACE]], as lspci -d does"},
      {{"add-kind", "mine", "--label", "x"},
       ErrorClass::State,
       "mine is written by hand in /etc/pcilend/10-lab.json: kinds[0]: change it there"},
      {{"remove-kind", "mine"},
       ErrorClass::NotFound,
       "mine is written by hand in /etc/pcilend/10-lab.json: kinds[0]: remove it there"},
      {{"remove-kind", "storage"},
       ErrorClass::Usage,
       "storage is always there: only kinds of add-kind are removed"},
      {{"remove-kind", "fast"}, ErrorClass::NotFound, "no kind fast: 'pcilend kinds' lists them"},
  };
  for (const auto& [arguments, kind, text] : cases) {
    const Outcome result = run(arguments);
    EXPECT_EQ(result.status, static_cast<int>(kind)) << text;
    EXPECT_EQ(result.err, "pcilend: " + text + "\n");
  }
  EXPECT_FALSE(Environment(root_).exists("/etc/pcilend/kinds.json"));
}

TEST_F(PolicyTest, SaveWritesWhatIs) {
  Function lent = nvme(0x80001, PCILEND_FUNCTION_BORROWED);
  lent.label = "lab";
  lent.allowed = std::vector<uint32_t>{4};
  kernel_.functions = {nvme(0x40001, PCILEND_FUNCTION_AVAILABLE), lent};
  Link up;
  up.peer = 4;
  up.connected = true;
  kernel_.links = {up};
  expect_golden("save.txt", run({"save"}));
  EXPECT_THAT(file("/etc/pcilend/saved.json"), HasSubstr(R"("uuid": "70636c64-1111-8222-8333-)"));
  expect_golden("save.json", run({"save", "--json", "--file", "/root/pcilend.json"}));
  EXPECT_EQ(file("/root/pcilend.json"), file("/etc/pcilend/saved.json"));
}

TEST_F(PolicyTest, ARelativePathFromADirectoryThatIsGoneIsAnError) {
  const fs::path before = fs::current_path();
  const fs::path gone = root_ / "gone";
  fs::create_directory(gone);
  fs::current_path(gone);
  fs::remove(gone);
  const Outcome result = run({"save", "--file", "here.json"});
  fs::current_path(before);
  EXPECT_NE(result.status, 0);
  EXPECT_EQ(result.err, "pcilend: here.json: No such file or directory\n");
}

}  // namespace
}  // namespace pcilend::test
