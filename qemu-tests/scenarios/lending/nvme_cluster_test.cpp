// SPDX-License-Identifier: GPL-2.0-or-later
// A cluster's file system on a drive that pcilend shares (docs/nvme.md).
#include <gmock/gmock.h>

#include "main_job/admin_steps.h"
#include "testing/asserts.h"
#include "testing/attached.h"
#include "testing/lan.h"
#include "testing/suite_lab.h"
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr const char* kDebian = "/mnt";  // with the cluster's programs
constexpr const char* kData = "/data";
constexpr const char* kAgent = "/run/fence_pcilend";

/*
 *   host1 (lender, node 4)                      host2 (node 8) ──── lan ──── host3 (node 12)
 *   pcilend-nvme-manager ── nvme ══════════════ /dev/ublkb0 ── GFS2 ──────── /dev/ublkb0 ── GFS2
 *                     ╰──── fence_pcilend ───── dlm_controld ── corosync ─── dlm_controld
 */
class NvmeCluster : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "nvme-cluster";
    options.hosts = 3;
    ASSERT_OK(add_lan(options, 2, 3));
    ASSERT_OK(
        options.add_device(fmt::format("host1:nvme,id=nvme,serial=cluster,drive-size=128M,"
                                       "x-max-bounce-buffer-size=16M{}",
                                       kNoShadowDoorbells)));
    for (const int host : {1, 2, 3})
      ASSERT_OK(attach(options, host, Attached::Cluster, "virtio-blk-pci,id=cluster"));
    ASSERT_OK(start_lab(options, lab_));
    for (const int host : {1, 2, 3}) ASSERT_NO_FATAL_FAILURE(mount_debian(lab_->host(host)));
  }
  static void TearDownTestSuite() { EXPECT_OK(end_lab(lab_)); }

  void SetUp() override {
    ASSERT_TRUE(lab_) << "the lab did not start";
    for (const int host : {1, 2, 3}) ASSERT_OK(lab_->host(host).mark_log());
    for (const int host : {2, 3})
      ASSERT_OK(lender().run(fmt::format("pcilend connect {}", lab_->host(host).node())));
    const auto address = lender().address("nvme");
    ASSERT_OK(address);
    address_ = *address;
  }

  static const lab::Host& lender() { return lab_->host(1); }
  static std::string debian(const std::string& command) {
    return fmt::format("chroot {} {}", kDebian, command);
  }

  static void mount_debian(const lab::Host& host) {
    const auto disk = await_disk(host, *host.address("cluster"));
    ASSERT_OK(disk);
    ASSERT_OK(host.run(fmt::format(
        "mount {0} {1} && mkdir -p /dev/shm /dev/misc && mount -t tmpfs shm /dev/shm && "
        "modprobe -a configfs dlm gfs2 && "
        "{{ mountpoint -q /sys/kernel/config || mount -t configfs config /sys/kernel/config; }} && "
        "mount --rbind /dev {1}/dev && mount --rbind /sys {1}/sys && mount -t proc proc {1}/proc "
        "&& "
        "mount --bind /run {1}/run && cp /usr/sbin/fence_pcilend {2} && "
        "for dlm in dlm-control dlm-monitor dlm_plock; do ln -sf ../$dlm /dev/misc/$dlm; done",
        *disk, kDebian, kAgent)));
  }

  // The file system is made by the drive's own driver; then the drive is shared.
  void share_drive() {
    const auto disk = await_disk(lender(), address_);
    ASSERT_OK(disk);
    ASSERT_OK(lender().run(debian("mkfs.gfs2 -O -p lock_dlm -t lab:data -j 2 -J 8 " + *disk)));
    const auto offered = offer(lender(), address_);
    ASSERT_OK(offered);
    id_ = offered->at("id");
    auto manager =
        lender().start(fmt::format("exec pcilend-nvme-manager {} 2>&1", address_), {{}, 30min});
    ASSERT_OK(manager);
    manager_.emplace(std::move(*manager));
    ASSERT_OK(lab::eventually("the drive is shared", lab::kPatience, [&] {
      return manager_->ended() || manager_->output_so_far().find("is shared") != std::string::npos;
    }));
    ASSERT_FALSE(manager_->ended()) << manager_->output_so_far();
    for (const int host : {2, 3}) ASSERT_OK(await_state(lab_->host(host), id_, "borrowed"));
  }

  // Corosync, whose messages busy hosts answer late; and dlm_controld, with the agent.
  void start_cluster() {
    for (const int number : {2, 3}) {
      const lab::Host& host = lab_->host(number);
      ASSERT_OK(join_lan(host));
      ASSERT_OK(
          host.run(fmt::format(R"sh(cat >{0}/etc/corosync/corosync.conf <<END
totem {{
  version: 2
  cluster_name: lab
  transport: udpu
  token: 20000
}}
nodelist {{
  node {{
    ring0_addr: 10.8.0.2
    nodeid: 2
  }}
  node {{
    ring0_addr: 10.8.0.3
    nodeid: 3
  }}
}}
quorum {{
  provider: corosync_votequorum
  two_node: 1
}}
logging {{
  to_stderr: yes
  to_syslog: no
}}
END
mkdir -p {0}/etc/dlm && cat >{0}/etc/dlm/dlm.conf <<END
device pcilend {1} function={2}
connect pcilend node=2 port={3}
connect pcilend node=3 port={4}
END)sh",
                               kDebian, kAgent, id_, lab_->host(2).node(), lab_->host(3).node())));
      auto corosync = host.start(debian("corosync -f 2>&1"), {{}, 30min});
      ASSERT_OK(corosync);
      daemons_.push_back(std::move(*corosync));
    }
    for (const int number : {2, 3}) {
      const lab::Host& host = lab_->host(number);
      ASSERT_OK(host.until(debian("corosync-quorumtool -s | grep -E 'Total votes: +2'")));
      auto dlm = host.start(debian("dlm_controld -D 2>&1"), {{}, 30min});
      ASSERT_OK(dlm);
      daemons_.push_back(std::move(*dlm));
    }
    // It has told the kernel where its nodes are.
    for (const int number : {2, 3})
      ASSERT_OK(
          lab_->host(number).until("[ $(ls /sys/kernel/config/dlm/cluster/comms | wc -l) = 2 ]"));
  }

  static Result<> mount(const lab::Host& host) {
    PCILEND_TRY(
        host.run(fmt::format("mkdir -p {0} && mount -t gfs2 -o noatime /dev/ublkb0 {0}", kData)));
    return {};
  }

  static std::optional<lab::Lab> lab_;
  std::string address_;
  std::string id_;
  std::optional<lab::Running> manager_;
  std::vector<lab::Running> daemons_;
};

std::optional<lab::Lab> NvmeCluster::lab_;

/*
 *   host2 and host3: each reads what the other writes. host2 writes on, and dies: host3 has it
 *   fenced, replays its journal, has all that was written, and goes on; the file system is whole
 */
TEST_F(NvmeCluster, AFileSystemOfTwoHostsOutlivesOneOfThem) {
  ASSERT_NO_FATAL_FAILURE(share_drive());
  const lab::Host& a = lab_->host(2);
  const lab::Host& b = lab_->host(3);
  for (const lab::Host* host : {&a, &b})
    ASSERT_OK(host->json("pcilend nvme attach --json --shared-fs " + id_));
  ASSERT_NO_FATAL_FAILURE(start_cluster());
  for (const lab::Host* host : {&a, &b}) ASSERT_OK(mount(*host));

  ASSERT_OK(a.run(fmt::format("echo of host2 >{}/a", kData)));
  ASSERT_OK(b.run(fmt::format("grep -x 'of host2' {0}/a && echo of host3 >{0}/b", kData)));
  ASSERT_OK(a.run(fmt::format("grep -x 'of host3' {}/b", kData)));

  auto writer = a.start(
      fmt::format("for i in $(seq 100000); do seq $i $((i + 500)) >{0}/w$i && sync {0}/w$i && "
                  "echo $i || exit 1; done",
                  kData),
      {{}, 30min});
  ASSERT_OK(writer);
  ASSERT_OK(lab::eventually("twenty files are written", lab::kPatience, [&] {
    return writer->ended() || writer->output_so_far().find("\n20\n") != std::string::npos;
  }));
  ASSERT_FALSE(writer->ended()) << writer->output_so_far();
  ASSERT_OK(lab_->host(2).power_off());
  const std::string said = writer->output_so_far();
  const auto confirmed = std::ranges::count(said, '\n');
  ASSERT_GE(confirmed, 20);

  ASSERT_OK(lab::eventually("host2 is fenced", 5min, [&] {
    return manager_->output_so_far().find(fmt::format("node {} is fenced", a.node())) !=
           std::string::npos;
  }));
  const auto read = b.exec(
      fmt::format("for i in $(seq {1}); do seq $i $((i + 500)) | cmp - {0}/w$i || exit 1; done && "
                  "echo on >{0}/c && sync {0}/c",
                  kData, confirmed),
      {{}, 5min});
  ASSERT_OK(read);
  EXPECT_EQ(read->code, 0) << read->out << read->err;
  EXPECT_THAT(b.log(), HasSubstr("jid=0: Done"));

  // It is for host2 to say that it is there again.
  const auto status = b.exec(fmt::format("fence_pcilend -o status -f {} -n {}", id_, a.node()));
  ASSERT_OK(status);
  EXPECT_EQ(status->code, 2);
  ASSERT_OK(b.run(fmt::format("umount {} && pcilend nvme detach {}", kData, id_)));
  ASSERT_OK(b.run(fmt::format("fence_pcilend -o on -f {} -n {}", id_, a.node())));
  ASSERT_OK(lender().run("kill -TERM $(pidof pcilend-nvme-manager)"));
  const auto ended = manager_->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << manager_->output_so_far();
  ASSERT_OK(lender().run(fmt::format("pcilend unavailable {0} && pcilend remove {0}", id_)));
  const auto disk = await_disk(lender(), address_);
  ASSERT_OK(disk);
  const auto check = lender().exec(debian("fsck.gfs2 -n " + *disk), {{}, 5min});
  ASSERT_OK(check);
  EXPECT_EQ(check->code, 0) << check->out << check->err;
}

}  // namespace
}  // namespace pcilend::scenarios
