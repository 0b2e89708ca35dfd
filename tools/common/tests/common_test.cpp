// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pcilend/environment.h"
#include "pcilend/fd.h"

namespace pcilend {
namespace {

namespace fs = std::filesystem;

class EnvironmentTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/pcilend-environment.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path root_;
};

TEST_F(EnvironmentTest, PathsLieBelowTheRoot) {
  EXPECT_EQ(Environment(root_).path("/sys/bus"), root_ / "sys/bus");
  EXPECT_EQ(Environment().path("/sys/bus"), "/sys/bus");
}

TEST_F(EnvironmentTest, AMissingFileIsNotFound) {
  const auto text = Environment(root_).read("/etc/none");
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().kind, ErrorClass::NotFound);
  EXPECT_NE(text.error().message.find("/etc/none"), std::string::npos);
}

TEST_F(EnvironmentTest, ReplacedFileReadsBackAndLeavesNothingAside) {
  const Environment environment(root_);
  ASSERT_TRUE(environment.replace_file("/run/a/b", "one"));
  ASSERT_TRUE(environment.replace_file("/run/a/b", "two"));
  EXPECT_EQ(environment.read("/run/a/b").value(), "two");
  EXPECT_EQ(std::distance(fs::directory_iterator(root_ / "run/a"), fs::directory_iterator()), 1);
}

TEST_F(EnvironmentTest, ReplaceReportsADirectoryThatCannotBe) {
  const Environment environment(root_);
  ASSERT_TRUE(environment.replace_file("/file", "x"));
  EXPECT_FALSE(environment.replace_file("/file/below", "x"));
}

TEST_F(EnvironmentTest, AttributesAreNotCreated) {
  const auto written = Environment(root_).write_attribute("/sys/none", "1");
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().kind, ErrorClass::NotFound);
}

TEST_F(EnvironmentTest, LinksAreFollowedToTheirEnd) {
  const Environment environment(root_);
  ASSERT_TRUE(environment.replace_file("/devices/parent/child", "x"));
  fs::create_directory_symlink("../devices/parent", root_ / "bus");
  fs::create_directory_symlink(root_ / "devices/parent", root_ / "link");
  EXPECT_EQ(environment.resolve("/link/child").value(), root_ / "devices/parent/child");
  const auto missing = environment.resolve("/link/other");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind, ErrorClass::NotFound);
}

TEST_F(EnvironmentTest, AReplacedFileKeepsItsLinkAndItsMode) {
  const Environment environment(root_);
  ASSERT_TRUE(environment.replace_file("/kept/saved.json", "old"));
  EXPECT_EQ(fs::status(root_ / "kept/saved.json").permissions(), static_cast<fs::perms>(0644));
  fs::permissions(root_ / "kept/saved.json", static_cast<fs::perms>(0600));
  fs::create_directories(root_ / "etc");
  fs::create_symlink("../kept/saved.json", root_ / "etc/saved.json");
  ASSERT_TRUE(environment.replace_file("/etc/saved.json", "new"));
  EXPECT_TRUE(fs::is_symlink(root_ / "etc/saved.json"));
  EXPECT_EQ(environment.read("/kept/saved.json").value(), "new");
  EXPECT_EQ(fs::status(root_ / "kept/saved.json").permissions(), static_cast<fs::perms>(0600));
}

TEST_F(EnvironmentTest, RemovingTwiceIsFine) {
  const Environment environment(root_);
  ASSERT_TRUE(environment.replace_file("/f", "x"));
  EXPECT_TRUE(environment.remove_file("/f"));
  EXPECT_TRUE(environment.remove_file("/f"));
  EXPECT_FALSE(environment.exists("/f"));
}

TEST(UniqueFd, ClosesWhatItOwnsOnce) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  {
    UniqueFd first(ends[0]);
    UniqueFd second(std::move(first));
    EXPECT_FALSE(first);
    EXPECT_EQ(second.get(), ends[0]);
  }
  EXPECT_EQ(::fcntl(ends[0], F_GETFD), -1);
  ::close(ends[1]);
}

TEST(Mapping, SharesTheFile) {
  UniqueFd fd(::memfd_create("mapping", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(fd.get(), 8192), 0);
  auto writer = Mapping::map(fd.get(), 0, 8192, true);
  auto reader = Mapping::map(fd.get(), 4096, 4096, false);
  ASSERT_TRUE(writer && reader);
  writer->bytes()[4096] = std::byte{7};
  EXPECT_EQ(reader->bytes()[0], std::byte{7});
}

TEST(Mapping, AnUnalignedOffsetIsRefused) {
  UniqueFd fd(::memfd_create("mapping", MFD_CLOEXEC));
  EXPECT_FALSE(Mapping::map(fd.get(), 1, 4096, false));
}

TEST(Error, ContextStandsInFront) {
  EXPECT_EQ((Error{ErrorClass::State, "it is busy"}.in("40001").message), "40001: it is busy");
}

}  // namespace
}  // namespace pcilend
