// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/payload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "lab/cpio.h"

namespace pcilend::lab {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;

struct Entry {
  std::string path;
  unsigned mode;
  std::string content;

  bool operator==(const Entry&) const = default;
};

// Reads archives one behind the other, as the kernel does: zero bytes between them are skipped.
std::vector<Entry> unpack(std::string_view archive) {
  std::vector<Entry> entries;
  size_t at = 0;
  const auto hex = [&](size_t field) {
    return std::stoul(std::string(archive.substr(at + 6 + 8 * field, 8)), nullptr, 16);
  };
  const auto align = [](size_t n) { return (n + 3) / 4 * 4; };
  while (at < archive.size()) {
    if (archive[at] == '\0') {
      ++at;
      continue;
    }
    EXPECT_EQ(at % 4, 0U);
    if (archive.substr(at, 6) != "070701") {
      ADD_FAILURE() << "no header at " << at;
      break;
    }
    const size_t size = hex(6), name_size = hex(11), mode = hex(1);
    const size_t content = align(at + 110 + name_size);
    const std::string name(archive.substr(at + 110, name_size - 1));
    EXPECT_EQ(archive[at + 110 + name_size - 1], '\0');
    if (name != "TRAILER!!!")
      entries.push_back(
          {name, static_cast<unsigned>(mode), std::string(archive.substr(content, size))});
    at = align(content + size);
  }
  return entries;
}

TEST(Cpio, FilesComeWithTheirDirectories) {
  CpioWriter writer;
  writer.add_file("payload/usr/sbin/tool", "program", 0755);
  writer.add_file("payload/usr/x", std::string("\0b", 2), 0600);
  writer.add_directory("payload/run/dir");
  const std::string archive = std::move(writer).finish();
  EXPECT_EQ(archive.size() % 512, 0U);
  EXPECT_THAT(
      unpack(archive),
      ElementsAre(Entry{"payload", S_IFDIR | 0755, ""}, Entry{"payload/usr", S_IFDIR | 0755, ""},
                  Entry{"payload/usr/sbin", S_IFDIR | 0755, ""},
                  Entry{"payload/usr/sbin/tool", S_IFREG | 0755, "program"},
                  Entry{"payload/usr/x", S_IFREG | 0600, std::string("\0b", 2)},
                  Entry{"payload/run", S_IFDIR | 0755, ""},
                  Entry{"payload/run/dir", S_IFDIR | 0755, ""}));
}

TEST(Cpio, NamesAndContentsOfEveryLengthAreAligned) {
  for (size_t length = 0; length < 9; ++length) {
    CpioWriter writer;
    const std::string name(length + 1, 'n');
    const std::string content(length, 'c');
    writer.add_file(name, content, 0644);
    writer.add_file("last", "l", 0644);
    EXPECT_THAT(
        unpack(std::move(writer).finish()),
        ElementsAre(Entry{name, S_IFREG | 0644, content}, Entry{"last", S_IFREG | 0644, "l"}));
  }
}

TEST(Cpio, TheSystemsCpioReadsIt) {
  if (std::system("command -v cpio >/dev/null 2>&1") != 0) GTEST_SKIP() << "no cpio here";
  CpioWriter writer;
  writer.add_file("a/b", "content", 0640);
  const std::string path = testing::TempDir() + "pcilend-archive";
  std::ofstream(path, std::ios::binary) << std::move(writer).finish();
  EXPECT_EQ(std::system(("cpio -t --quiet < " + path + " | grep -qx a/b").c_str()), 0);
  fs::remove(path);
}

class PayloadTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/pcilend-payload.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
    ::unsetenv("PCILEND_BUILD_DIR");
    artefacts_.bin = dir_ / "bin";
    artefacts_.image = dir_ / "image";
    artefacts_.modules = dir_ / "modules/6.12";
    artefacts_.kernel = "6.12";
    write(artefacts_.lab(), "LAB");
    write(artefacts_.agent(), "AGENT");
    write(artefacts_.peer(), "PEER");
    write(artefacts_.reach(), "REACH");
    write(artefacts_.guest_initrd(), guest());
    write(artefacts_.initrd(), "12345");
    write(artefacts_.release(), "6.12.9+deb13-amd64\n");
  }
  void TearDown() override { fs::remove_all(dir_); }

  static std::string guest() {
    CpioWriter writer;
    writer.add_file("init", "INIT", 0755);
    return std::move(writer).finish();
  }

  static void write(const fs::path& path, std::string_view content) {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
  }

  fs::path dir_;
  Artefacts artefacts_;
};

TEST_F(PayloadTest, TheReleaseIsWhatTheImageSays) {
  EXPECT_EQ(kernel_release(artefacts_), "6.12.9+deb13-amd64");
  write(artefacts_.release(), "../..\n");
  EXPECT_THAT(kernel_release(artefacts_).error().message, HasSubstr("names no kernel release"));
}

TEST_F(PayloadTest, HasWhatIsBuilt) {
  const auto bare = payload_files(artefacts_, "6.12.9");
  ASSERT_TRUE(bare);
  ASSERT_EQ(bare->size(), 1U);
  EXPECT_EQ(bare->at(0).path, "/usr/lib/pcilend-lab/agent");

  write(artefacts_.tool(), "TOOL");
  write(dir_ / "system/usr/lib/udev/rules.d/90-pcilend.rules", "RULE");
  write(artefacts_.modules / "pcilend_mdev.ko", "MDEV");
  write(artefacts_.modules / "pcilend.ko", "CORE");
  write(artefacts_.modules / "Module.symvers", "no module");
  const auto files = payload_files(artefacts_, "6.12.9");
  ASSERT_TRUE(files);
  ASSERT_EQ(files->size(), 5U);
  EXPECT_EQ(files->at(1).path, "/usr/sbin/pcilend");
  EXPECT_EQ(files->at(2).path, "/usr/lib/udev/rules.d/90-pcilend.rules");
  EXPECT_EQ(files->at(3).path, "/usr/lib/modules/6.12.9/updates/pcilend.ko");
  EXPECT_EQ(files->at(4).path, "/usr/lib/modules/6.12.9/updates/pcilend_mdev.ko");
}

TEST_F(PayloadTest, StandsBehindTheImagesInitramfs) {
  write(artefacts_.tool(), "TOOL");
  const std::string path = dir_ / "initrd";
  ASSERT_TRUE(write_initrd(artefacts_, path));
  std::ifstream file(path, std::ios::binary);
  const std::string archive{std::istreambuf_iterator<char>(file), {}};
  ASSERT_EQ(archive.substr(0, 8), std::string("12345\0\0\0", 8));
  const auto entries = unpack(archive.substr(8));
  EXPECT_THAT(entries,
              IsSupersetOf({Entry{"payload/usr/sbin/pcilend", S_IFREG | 0755, "TOOL"},
                            Entry{"payload/usr/lib/pcilend-lab/agent", S_IFREG | 0755, "AGENT"}}));
  const Entry& initrd = entries.back();
  EXPECT_EQ(initrd.path, "payload/usr/share/pcilend-lab/guest/initrd");
  EXPECT_THAT(
      unpack(initrd.content),
      ElementsAre(Entry{"init", S_IFREG | 0755, "INIT"}, Entry{"agent", S_IFREG | 0755, "AGENT"},
                  Entry{"bin", S_IFDIR | 0755, ""}, Entry{"bin/peer", S_IFREG | 0755, "PEER"},
                  Entry{"bin/reach", S_IFREG | 0755, "REACH"}));
}

TEST_F(PayloadTest, WhatIsMissingIsNamed) {
  fs::remove(artefacts_.guest_initrd());
  const auto written = write_initrd(artefacts_, dir_ / "initrd");
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, HasSubstr("guest-initrd"));
}

TEST_F(PayloadTest, ArtefactsAreFoundBesideTheProgram) {
  for (const char* file : {"qemu-system-x86_64", "qemu-img", "root-6.12.ext4", "vmlinuz-6.12"})
    write(artefacts_.image / file, "");
  const auto beside = Artefacts::find(dir_ / "bin/pcilend-lab", "6.12");
  ASSERT_TRUE(beside) << beside.error().message;
  EXPECT_EQ(beside->qemu(), dir_ / "image/qemu-system-x86_64");
  EXPECT_EQ(beside->modules, dir_ / "modules/6.12");

  write(dir_ / "sanitize/bin/pcilend-lab", "");
  write(dir_ / "sanitize/bin/pcilend-lab-agent", "");
  write(dir_ / "sanitize/bin/pcilend-lab-peer", "");
  write(dir_ / "sanitize/bin/pcilend-lab-reach", "");
  const auto above = Artefacts::find(dir_ / "sanitize/bin/pcilend-lab", "6.12");
  ASSERT_TRUE(above) << above.error().message;
  EXPECT_EQ(above->image, dir_ / "image");
  EXPECT_EQ(above->agent(), dir_ / "sanitize/bin/pcilend-lab-agent");

  const auto other = Artefacts::find(dir_ / "bin/pcilend-lab", "backports");
  ASSERT_FALSE(other);
  EXPECT_EQ(
      other.error().message,
      fmt::format("{}/image/vmlinuz-backports is not there: run 'make image KERNEL=backports' "
                  "(qemu-tests/image/build)",
                  dir_.native()));
  fs::remove(artefacts_.agent());
  EXPECT_THAT(Artefacts::find(dir_ / "bin/pcilend-lab", "6.12").error().message,
              HasSubstr("run 'make build'"));
}

}  // namespace
}  // namespace pcilend::lab
