// SPDX-License-Identifier: GPL-2.0-or-later
// The Debian packages on a host of the lab. tools/package/test has made them, an upgrade, and the
// modules of both, as DKMS builds them: a host of the lab has no compiler.
#include <gmock/gmock.h>

#include <filesystem>

#include "lab/payload.h"
#include "main_job/admin_steps.h"
#include "main_job/main_job.h"
#include "testing/asserts.h"
#include "testing/suite_lab.h"

namespace pcilend::scenarios {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

using testing::HasSubstr;

constexpr const char* kMount = "/mnt";

/*
 *   host1 (lender, node 4)      host2 (borrower, node 8): what the lab has put there goes, and
 *   nvme ── IOMMU ── NTB ══════ the packages are installed with dpkg
 */
class Packages : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "packages";
    kernel_ = options.kernel;
    ASSERT_OK(options.add_device("host1:nvme,serial=packaged,drive-size=64M"));
    ASSERT_OK(options.add_device("host1:edu,id=edu,dma_mask=0xffffffffff,root-port=on"));
    ASSERT_OK(start_lab(options, lab_));
  }
  static void TearDownTestSuite() { EXPECT_OK(end_lab(lab_)); }

  void SetUp() override {
    ASSERT_TRUE(lab_) << "the lab did not start";
    const auto artefacts = lab::Artefacts::find(kernel_);
    ASSERT_OK(artefacts);
    debs_ = artefacts->bin.parent_path() / "deb";
    const auto release = lab::kernel_release(*artefacts);
    ASSERT_OK(release);
    modules_ = "/lib/modules/" + *release + "/updates";
    const auto address = lender().address(0);
    ASSERT_OK(address);
    job_.emplace(lender(), host(), *address, "guest");
    ASSERT_OK(lender().mark_log());
    ASSERT_OK(host().mark_log());
  }
  void TearDown() override {
    if (!lab_) return;
    EXPECT_OK(lender().check_log());
    EXPECT_OK(host().check_log());
  }

  [[nodiscard]] static lab::Host& lender() { return lab_->host(1); }
  [[nodiscard]] static lab::Host& host() { return lab_->host(2); }
  [[nodiscard]] MainJob& job() { return *job_; }

  // The version of the packages in `directory`; pcilend_VERSION_amd64.deb is there.
  static Result<std::string> version_in(const fs::path& directory) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(directory, error)) {
      const std::string name = entry.path().filename();
      if (name.rfind("pcilend_", 0) == 0 && entry.path().extension() == ".deb")
        return name.substr(8, name.rfind('_') - 8);
    }
    return fail(ErrorClass::NotFound, "no packages in {}: run tools/package/test",
                directory.native());
  }

  // dpkg, and what DKMS would do; nothing is loaded.
  Result<> install(const fs::path& directory) const {
    const auto version = version_in(directory);
    if (!version) return tl::unexpected(version.error());
    PCILEND_TRY(host().run("mkdir -p /tmp/debs && rm -f /tmp/debs/*"));
    for (const char* name : {"pcilend", "pcilend-libvirt"}) {
      const std::string deb = fmt::format("{}_{}_amd64.deb", name, *version);
      PCILEND_TRY(host().put(directory / deb, "/tmp/debs/" + deb));
    }
    PCILEND_TRY(host().run("dpkg -i /tmp/debs/*.deb"));
    PCILEND_TRY(host().run(fmt::format("rm -rf {0}/dkms && mkdir {0}/dkms", modules_)));
    for (const char* name : {"pcilend", "pcilend_mdev", "pcilend_shadow"})
      PCILEND_TRY(host().put(directory / "modules" / kernel_ / fmt::format("{}.ko", name),
                             fmt::format("{}/dkms/{}.ko", modules_, name)));
    PCILEND_TRY(host().run("depmod"));
    return {};
  }
  static Result<> load() {
    PCILEND_TRY(host().run("modprobe pcilend node=8 && modprobe -a pcilend_shadow pcilend_mdev"));
    return {};
  }
  static Result<> unload() {
    PCILEND_TRY(host().run("modprobe -r pcilend_mdev pcilend_shadow && modprobe -r pcilend"));
    return {};
  }
  static std::string loaded_version() {
    const auto version = host().run("cat /sys/module/pcilend/version");
    return version ? version->substr(0, version->find('\n')) : "";
  }
  static std::string command_version() {
    const auto version = host().run("pcilend --version");
    return version ? version->substr(0, version->find('\n')) : "";
  }
  static std::string packages() {
    const auto known = host().run(
        "dpkg-query -W -f '${db:Status-Abbrev}${Package}\\n' | grep pcilend | grep -v ^un || true");
    return known ? *known : known.error().message;
  }
  // Files of this project besides those of the lab.
  static std::string our_files() {
    const auto files = host().run(
        "find / -xdev \\( -path /tmp -o -path /run -o -path /var/lib/dpkg -o -name 'pcilend-lab*' "
        "\\) -prune -o -name '*pcilend*' ! -type d -print | sort");
    return files ? *files : files.error().message;
  }
  static void expect_refused(const std::string& command, const std::string& words) {
    const auto refused = host().exec(command);
    ASSERT_OK(refused);
    EXPECT_NE(refused->code, 0);
    EXPECT_THAT(refused->err, HasSubstr(words));
  }
  // The library's examples, as a user has built them.
  void expect_examples_work(const std::string& version) const {
    const std::string deb = fmt::format("libpcilend0_{}_amd64.deb", version);
    for (const auto* one : {&lender(), &host()}) {
      ASSERT_OK(one->put(debs_ / deb, "/tmp/" + deb));
      for (const std::string example : {"copy", "exchange"})
        ASSERT_OK(one->put(debs_ / example, "/tmp/" + example));
      ASSERT_OK(one->run("chmod 755 /tmp/copy /tmp/exchange && dpkg -i /tmp/" + deb));
    }
    expect_lines_exchanged();
    expect_pages_copied();
    for (const auto* one : {&lender(), &host()}) ASSERT_OK(one->run("dpkg -P libpcilend0"));
  }
  // Lines are carried from one host to the other.
  static void expect_lines_exchanged() {
    auto receiver = host().start("exec /tmp/exchange receive 4");
    ASSERT_OK(receiver);
    std::string id;
    ASSERT_OK(host().until("true", [&](const lab::Output&) {
      const std::string said = receiver->output_so_far();
      if (said.find('\n') != std::string::npos) id = said.substr(8, said.find('\n') - 8);
      return !id.empty() || receiver->ended();
    }));
    ASSERT_OK(lender().run("printf 'one line\nanother\n' | /tmp/exchange send " + id));
    const auto received = receiver->wait();
    ASSERT_OK(received);
    EXPECT_EQ(received->code, 0) << received->err;
    EXPECT_EQ(received->out, "segment " + id + "\none line\nanother\n");
  }
  // A function copies memory of its own host's process, and of the other one's.
  static void expect_pages_copied() {
    const auto edu = lender().address("edu");
    ASSERT_OK(edu);
    const auto offered = offer(lender(), *edu);
    ASSERT_OK(offered);
    const std::string id = offered->at("id");
    for (const auto* one : {&lender(), &host()}) {
      ASSERT_OK(await_state(*one, id, "available"));
      EXPECT_EQ(one->run("/tmp/copy " + id).value_or("it failed"), "copied 16 pages\n");
    }
    ASSERT_OK(await_state(lender(), id, "available"));
    ASSERT_OK(lender().run("pcilend unavailable " + id + " && pcilend remove " + id));
  }
  static int rounds() {
    const auto done = host().exec("cat /tmp/rounds");
    return done && done->code == 0 && !done->out.empty() ? std::stoi(done->out) : 0;
  }
  static Result<> await_rounds(int more) {
    const int before = rounds();
    return lab::eventually("files are written", lab::kPatience,
                           [&] { return rounds() >= before + more; });
  }

  static std::optional<lab::Lab> lab_;
  static std::string kernel_;
  fs::path debs_;
  std::string modules_;
  std::optional<MainJob> job_;
};

std::optional<lab::Lab> Packages::lab_;
std::string Packages::kernel_;

TEST_F(Packages, AreInstalledUpgradedInUseAndRemoved) {
  const auto version = version_in(debs_);
  ASSERT_OK(version);
  const fs::path next = debs_ / (*version + ".1");
  const auto upgrade = version_in(next);
  ASSERT_OK(upgrade);

  ASSERT_OK(unload());
  ASSERT_OK(
      host().run(fmt::format("rm -rf /usr/sbin/*pcilend* /etc/libvirt/hooks/qemu.d/pcilend "
                             "/usr/libexec/pcilend /usr/lib/udev/rules.d/*pcilend* "
                             "/usr/lib/systemd/system/pcilend* {0}/*.ko && depmod",
                             modules_)));
  ASSERT_EQ(our_files(), "") << "the lab's own are gone";

  ASSERT_OK(install(debs_));
  EXPECT_EQ(host().exec("ls /sys/module/pcilend")->code, 2) << "nothing is loaded by itself";
  ASSERT_OK(load());
  EXPECT_EQ(loaded_version(), *version);
  const auto linked =
      lender().until("pcilend connect 8", [](const auto& o) { return o.code == 0; });
  ASSERT_OK(linked);
  ASSERT_NO_FATAL_FAILURE(expect_examples_work(*version));
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  const auto drive = job().borrow();
  ASSERT_OK(drive);
  ASSERT_OK(host().run(fmt::format(
      "mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 {0} 4M && mount {0} {1}",
      drive->disk, kMount)));
  ASSERT_OK(host().run("echo 0 >/tmp/rounds"));
  auto writer = host().start(
      fmt::format("n=0; while [ ! -e /tmp/stop ]; do head -c 8K /dev/urandom >/tmp/data && "
                  "dd if=/tmp/data of={0}/file bs=4k conv=fsync 2>/dev/null && "
                  "echo 1 >/proc/sys/vm/drop_caches && cmp /tmp/data {0}/file || exit 1; "
                  "n=$((n+1)); echo $n >/tmp/n; mv /tmp/n /tmp/rounds; done",
                  kMount),
      {{}, 10min});
  ASSERT_OK(writer);
  ASSERT_OK(await_rounds(2));

  expect_refused("dpkg -r pcilend-libvirt pcilend",
                 "functions are lent or borrowed, or disks attached, here");
  ASSERT_OK(install(next));
  EXPECT_EQ(command_version(), "pcilend " + *upgrade);
  EXPECT_EQ(loaded_version(), *version) << "the loaded module goes on";
  ASSERT_OK(await_rounds(2));
  const auto function = job().function_on(host());
  ASSERT_OK(function);
  EXPECT_EQ(function->at("state"), "borrowed");
  expect_refused("modprobe -r pcilend_shadow", "in use");
  ASSERT_OK(host().run("touch /tmp/stop"));
  const auto written = writer->wait();
  ASSERT_OK(written);
  EXPECT_EQ(written->code, 0) << written->err;
  ASSERT_OK(host().run(fmt::format("umount {}", kMount)));
  ASSERT_OK(host().run("pcilend return " + job().id()));

  ASSERT_OK(unload());
  ASSERT_OK(load());
  EXPECT_EQ(loaded_version(), *upgrade);
  ASSERT_OK(job().see_available());
  ASSERT_OK(job().start_guest());
  ASSERT_OK(job().await_guest_disk());
  expect_refused("dpkg -r pcilend-libvirt", "shut them down");
  ASSERT_OK(job().shut_down_guest());

  ASSERT_OK(host().run("dpkg -r pcilend-libvirt pcilend"));
  EXPECT_EQ(packages(), "rc pcilend\nrc pcilend-libvirt\n");
  ASSERT_OK(host().run("rm -r " + modules_ + "/dkms"));
  EXPECT_EQ(our_files(), "/etc/libvirt/hooks/qemu.d/pcilend\n");
  ASSERT_OK(host().run("/etc/libvirt/hooks/qemu.d/pcilend guest prepare begin - </dev/null"));
  ASSERT_OK(host().run("dpkg -P pcilend-libvirt pcilend"));
  EXPECT_EQ(our_files(), "");
  EXPECT_EQ(packages(), "");
  ASSERT_OK(lender().run("pcilend unavailable " + job().id()));
}

}  // namespace
}  // namespace pcilend::scenarios
