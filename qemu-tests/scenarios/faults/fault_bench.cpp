// SPDX-License-Identifier: GPL-2.0-or-later
#include "scenarios/faults/fault_bench.h"

#include <future>
#include <thread>
#include <utility>

#include "main_job/admin_steps.h"
#include "main_job/main_job.h"
#include "testing/suite_lab.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using lab::Condition;
using lab::ExecOptions;
using lab::Guest;
using lab::Host;
using lab::kPatience;
using lab::Output;
using nlohmann::json;

constexpr auto kLease = 10s;
// How long a link is down that only flaps.
constexpr auto kFlap = 1s;
constexpr auto kBoot = 5min;
// Of the guest's driver, instead of 30 s.
constexpr auto kIoTimeout = 10s;
// Stretches the control messages of a step, so that the fault meets it in the middle.
constexpr auto kStretch = 150ms;
constexpr int kRun = 512;       // slots of one run of I/O
constexpr size_t kVerify = 24;  // slots that are read after each case
constexpr const char* kGuest = "faulty";

bool is_reset(Fault fault) {
  return fault == Fault::Reset || fault == Fault::QuietReset;
}

bool is_dead(const FaultCase& one, Victim victim) {
  return one.victim == victim &&
         (one.fault == Fault::PowerOff || one.fault == Fault::Panic || is_reset(one.fault));
}

bool is_quiet(Fault fault) {
  return fault == Fault::QuietReset || fault == Fault::QuietFlap;
}

bool has_guest(const FaultCase& one) {
  return one.moment == Moment::Idle || one.moment == Moment::UnderIo;
}

// A command that a living host or guest must carry out.
Result<> answers(const auto& machine) {
  const auto output = machine.run("true", {{}, kPatience});
  if (!output)
    return tl::unexpected(
        Error(output.error()).in(fmt::format("{} does not answer", machine.name())));
  return {};
}

// What IOMMUs have stopped, as they should.
lab::Expected expected_in_log(const Host& host, const FaultCase& one) {
  const auto dma_faults = [](const std::string& what) -> lab::Expected {
    return {std::regex("^DMAR: DRHD: handling fault status reg"),
            std::regex("^DMAR: \\[DMA (Read|Write) NO_PASID\\] Request device " + what)};
  };
  // A dead host's device goes on and nobody can stop it: what it still sends meets closed pages.
  if (host.number() == 2 && one.victim == Victim::Lender && one.fault == Fault::Panic)
    return dma_faults("\\[(0000:)?00:0[0-9a-f]\\.0\\] fault addr ");
  // A lender is back before the borrower knows that it was gone, or a function is being reset: the
  // guest still rings doorbells, in what was the export region, or is shut.
  if (host.number() == 1 && one.victim == Victim::Lender &&
      (is_reset(one.fault) || one.fault == Fault::FunctionReset))
    return dma_faults("\\[(0000:)?00:04\\.0\\] fault addr 0x100[0-9a-f]{8} ");
  return {};
}

}  // namespace

Result<lab::Options> FaultBench::options(const std::string& lab_name) {
  lab::Options options;
  options.name = lab_name;
  PCILEND_TRY(options.add_device(
      fmt::format("host1:nvme,serial=faults,drive-size=64M{}", kNoShadowDoorbells)));
  // The last one on the command line counts.
  const auto lease = std::chrono::milliseconds(kLease).count();
  for (const int host : {1, 2})
    options.kernel_arguments[host].push_back(fmt::format("pcilend.lease_ms={}", lease));
  return options;
}

Result<> FaultBench::run(const FaultCase& one, const Timing& timing) {
  lab_.transcript().say("bench", '*', name_of(one));
  PCILEND_TRY(prepare(one));
  sound_ = false;
  PCILEND_TRY(reach(one, timing));
  PCILEND_TRY(inject(one));
  PCILEND_TRY(observe(one));
  PCILEND_TRY(restore(one));
  PCILEND_TRY(use_is_as_ever());
  PCILEND_TRY(check_logs(one));
  sound_ = true;
  return {};
}

Result<> FaultBench::close() {
  if (!sound_) return {};
  PCILEND_TRY(end_guest());
  PCILEND_TRY(await_state(lender(), "available"));
  PCILEND_TRY(nothing_is_left());
  return check_logs({Victim::Link, Fault::Flap, Moment::Idle});
}

// ---- up to the moment

Result<> FaultBench::prepare(const FaultCase& one) {
  if (!sound_) {
    PCILEND_TRY(restart_hosts());
    const auto address = lender().address(0);
    if (!address) return tl::unexpected(address.error());
    address_ = *address;
    PCILEND_TRY(see_link_up());
    PCILEND_TRY(offer());
    PCILEND_TRY(on_both([](Host& host) { return host.mark_log(); }));
    sound_ = true;
  }
  if (one.moment == Moment::Borrowing) {
    PCILEND_TRY(end_guest());
    PCILEND_TRY(await_state(borrower(), "available"));
    return define_guest();
  }
  if (!guest_) PCILEND_TRY(start_guest());
  const auto function = function_on(lender());
  if (!function) return tl::unexpected(function.error());
  lease_ = function->at("lease");
  return {};
}

// Whatever the last case left: both hosts begin anew. The first time they do already.
Result<> FaultBench::restart_hosts() {
  const bool left = !address_.empty();
  io_.reset();
  step_.reset();
  guest_.reset();
  defined_ = false;
  in_use_ = false;
  PCILEND_TRY(lab_.fabric().set_delay(1, 2, 0ms));
  PCILEND_TRY(lab_.fabric().link_up(1, 2));
  PCILEND_TRY(tell_events(true));
  return on_both([left](Host& host) -> Result<> {
    if (!left && host.machine().condition() == Condition::Running) return {};
    PCILEND_TRY(host.power_off());
    host.forget_log();
    return host.power_on(kBoot);
  });
}

// connect, add, available: as far as it is not so.
Result<> FaultBench::offer() {
  const auto links = lender().json("pcilend link --json");
  if (!links) return tl::unexpected(links.error());
  if (!links->at("links").at(0).at("connected").get<bool>())
    PCILEND_TRY(lender().run(fmt::format("pcilend connect {}", borrower().node())));
  const auto own = [&]() -> Result<json> {
    const auto list = lender().json("pcilend list --json");
    if (!list) return tl::unexpected(list.error());
    for (const json& function : list->at("functions"))
      if (function.value("bdf", "") == address_ && function.at("lender") == lender().node())
        return function;
    return json{{"state", "local"}};
  };
  auto function = own();
  if (!function) return tl::unexpected(function.error());
  const json state = function->at("state");
  if (state == "local") PCILEND_TRY(lender().run("pcilend add " + address_));
  if (state == "local" || state == "added")
    PCILEND_TRY(lender().run("pcilend available " + address_));
  function = own();
  if (!function) return tl::unexpected(function.error());
  id_ = function->at("id").get<std::string>();
  return await_state(borrower(), "available");
}

Result<> FaultBench::start_guest() {
  PCILEND_TRY(define_guest());
  PCILEND_TRY(guest_->start());
  return use_new_drive();
}

Result<> FaultBench::define_guest() {
  auto spec = borrower().guest_spec(kGuest, {id_});
  if (!spec) return tl::unexpected(spec.error());
  // With no root ports to scan it starts faster.
  spec->machine = "pc";
  guest_.emplace(borrower().guest(*spec));
  PCILEND_TRY(borrower().run(fmt::format(": >{}", lab::guest_console(kGuest))));
  if (defined_) return {};
  // A host that was killed may have kept the definition or not.
  PCILEND_TRY(borrower().exec(fmt::format("virsh undefine {}", kGuest)));
  PCILEND_TRY(guest_->define());
  defined_ = true;
  return {};
}

Result<> FaultBench::use_new_drive() {
  PCILEND_TRY(MainJob::await_disk(*guest_));
  const int errors = ledger_.errors();
  const auto io =
      guest_->exec(fmt::format("echo {} >/sys/block/nvme0n1/queue/io_timeout\n",
                               std::chrono::milliseconds(kIoTimeout).count()) +
                       read_script(ledger_.latest(kVerify)) + write_script(ledger_.begin_run(2), 2),
                   {{}, kPatience});
  if (!io) return tl::unexpected(io.error());
  PCILEND_TRY(ledger_.note_all(io->out));
  if (io->code != 0 || ledger_.errors() != errors)
    return fail(ErrorClass::Failure, "the guest can't use its new drive: {}{}", io->out, io->err);
  in_use_ = true;
  return {};
}

Result<> FaultBench::reach(const FaultCase& one, const Timing& timing) {
  switch (one.moment) {
    case Moment::Idle:
      break;
    case Moment::UnderIo:
      PCILEND_TRY(begin_io());
      break;
    case Moment::Borrowing:
      PCILEND_TRY(begin_step(fmt::format("virsh start {}", kGuest),
                             triggers(one.moment).at(timing.trigger)));
      break;
    case Moment::Returning:
      in_use_ = false;
      PCILEND_TRY(begin_step(fmt::format("virsh destroy {}", kGuest),
                             triggers(one.moment).at(timing.trigger)));
      break;
  }
  std::this_thread::sleep_for(timing.delay);
  return {};
}

Result<> FaultBench::begin_io() {
  const int writes = ledger_.writes();
  auto io = guest_->start(write_script(ledger_.begin_run(kRun), kRun), {{}, 10min});
  if (!io) return tl::unexpected(io.error());
  io_.emplace(std::move(*io));
  noted_ = 0;
  Result<> noted;
  PCILEND_TRY(lab::eventually("the guest has written three slots", kPatience, [&] {
    noted = note_io();
    return !noted || ledger_.writes() >= writes + 3 || io_->ended();
  }));
  if (noted && io_->ended())
    return fail(ErrorClass::Failure, "the guest's I/O ended before the fault: {}",
                io_->output_so_far());
  return noted;
}

// Begins virsh, and returns when the borrower's kernel is at the trigger.
Result<> FaultBench::begin_step(const std::string& command, const Trigger& trigger) {
  auto watch = borrower().start(
      fmt::format("cd /sys/kernel/tracing && echo >trace && echo 1 >events/{0}/enable && "
                  "echo armed && grep -m 1 '{1}' trace_pipe",
                  trigger.event, trigger.pattern),
      {{}, kPatience});
  if (!watch) return tl::unexpected(watch.error());
  PCILEND_TRY(lab::eventually("the tracepoint is armed", kPatience, [&] {
    return watch->output_so_far().find("armed\n") != std::string::npos || watch->ended();
  }));
  PCILEND_TRY(lab_.fabric().set_delay(1, 2, kStretch));
  auto step = borrower().start(command, {{}, kPatience});
  if (!step) return tl::unexpected(step.error());
  step_.emplace(std::move(*step));
  PCILEND_TRY(
      lab::eventually(trigger.text, kPatience, [&] { return watch->ended() || step_->ended(); }));
  // virsh does not wait for what the guest's firmware does, such as to have its memory mapped.
  if (!watch->ended() && !lab::eventually("", kPatience, [&] { return watch->ended(); }))
    return fail(ErrorClass::Failure, "'{}' ended before {}", command, trigger.text);
  return {};
}

// ---- the fault

Result<> FaultBench::inject(const FaultCase& one) {
  Host& host = one.victim == Victim::Borrower ? borrower() : lender();
  if (is_quiet(one.fault)) PCILEND_TRY(tell_events(false));
  const auto fault = [&]() -> Result<> {
    switch (one.fault) {
      case Fault::PowerOff:
        return host.power_off();
      case Fault::Panic:
        PCILEND_TRY(host.check_log());
        PCILEND_TRY(host.check_leaks());
        return host.panic();
      case Fault::Reset:
      case Fault::QuietReset:
        lab_.transcript().say(host.name(), '*', "reset");
        return host.machine().reset();
      case Fault::FunctionReset:
        PCILEND_TRY(host.run(fmt::format("echo 1 >/sys/bus/pci/devices/{}/reset", address_)));
        return {};
      case Fault::Flap:
      case Fault::QuietFlap:
        lab_.transcript().say("link", '*', "down, for a moment");
        PCILEND_TRY(lab_.fabric().link_down(1, 2));
        std::this_thread::sleep_for(kFlap);
        return lab_.fabric().link_up(1, 2);
      case Fault::Loss:
        lab_.transcript().say("link", '*', "down");
        return lab_.fabric().link_down(1, 2);
      case Fault::Unload:
        break;
    }
    return try_unload(one);
  };
  PCILEND_TRY(fault());
  return lab_.fabric().set_delay(1, 2, 0ms);
}

Result<> FaultBench::tell_events(bool told) const {
  PCILEND_TRY(lab_.fabric().tell_events(1, 2, told));
  return lab_.fabric().tell_events(2, 1, told);
}

Result<> FaultBench::try_unload(const FaultCase& one) {
  // The frontends would keep the module for themselves: on the lender nothing but the lease does.
  const bool on_lender = one.victim == Victim::Lender;
  Host& host = on_lender ? lender() : borrower();
  const auto unload = host.exec(on_lender ? "rmmod pcilend_mdev pcilend_shadow && rmmod pcilend"
                                          : "rmmod pcilend_mdev");
  if (!unload) return tl::unexpected(unload.error());
  // When the return is through, nothing speaks against it.
  const bool too_late = unload->code == 0 && one.moment == Moment::Returning;
  PCILEND_TRY(host.run(fmt::format(
      "modprobe pcilend node={} && modprobe -a pcilend_mdev pcilend_shadow", host.node())));
  if (too_late) return {};
  if (unload->code == 0 || unload->err.find("in use") == std::string::npos)
    return fail(ErrorClass::Failure, "{}: a module that has a lease was not kept: {}", host.name(),
                unload->code == 0 ? "it is unloaded" : unload->err);
  return {};
}

Result<> FaultBench::observe(const FaultCase& one) {
  if (is_dead(one, Victim::Lender)) return see_lender_gone(one);
  if (is_dead(one, Victim::Borrower)) {
    in_use_ = false;
    PCILEND_TRY(answers(lender()));
    return see_function_come_back();
  }
  for (Host* host : {&lender(), &borrower()}) PCILEND_TRY(answers(*host));
  if (one.fault == Fault::Unload) return see_nothing_happen(one);
  if (one.fault == Fault::Flap || one.fault == Fault::QuietFlap) return see_flap(one);
  if (one.fault == Fault::FunctionReset) return see_flap(one);
  PCILEND_TRY(see_function_come_back());
  return see_lender_gone(one);
}

// Dead, or out of reach for longer than the lease.
Result<> FaultBench::see_lender_gone(const FaultCase& one) {
  PCILEND_TRY(answers(borrower()));
  if (!has_guest(one)) {
    const auto ended = see_step_end();
    if (!ended) return tl::unexpected(ended.error());
    if (one.moment == Moment::Returning && *ended != 0)
      return fail(ErrorClass::Failure, "virsh destroy ended with {}", *ended);
    return {};
  }
  PCILEND_TRY(answers(*guest_));
  PCILEND_TRY(see_guest_lose_its_drive());
  if (io_) {
    PCILEND_TRY(lab::eventually("the guest's I/O ends", kPatience, [&] { return io_->ended(); }));
    const int errors = ledger_.errors();
    PCILEND_TRY(note_io());
    if (ledger_.errors() == errors)
      return fail(ErrorClass::Failure, "the guest's I/O met no error, though its drive is gone");
  }
  return answers(*guest_);
}

// A flap, or a reset of the function. Errors are the fault's, as with a pulled cable; but the lease
// is the same, and use resumes.
Result<> FaultBench::see_flap(const FaultCase& one) {
  PCILEND_TRY(see_link_up());
  if (!has_guest(one)) {
    const auto ended = see_step_end();
    if (!ended) return tl::unexpected(ended.error());
    if (one.moment == Moment::Returning && *ended != 0)
      return fail(ErrorClass::Failure, "virsh destroy ended with {}", *ended);
    if (one.moment != Moment::Borrowing || *ended != 0) return {};
    PCILEND_TRY(see_driver_take_drive());
    return use_new_drive();
  }
  PCILEND_TRY(answers(*guest_));
  PCILEND_TRY(end_io());
  PCILEND_TRY(see_guest_use_its_drive(kPatience));
  const auto function = function_on(lender());
  if (!function) return tl::unexpected(function.error());
  if (function->at("state") != "borrowed" || function->at("lease") != lease_)
    return fail(ErrorClass::Failure, "a flap has ended lease {}: it is {}, lease {}", lease_.dump(),
                function->at("state").dump(), function->at("lease").dump());
  return {};
}

Result<> FaultBench::see_nothing_happen(const FaultCase& one) {
  if (!has_guest(one)) {
    const auto ended = see_step_end();
    if (!ended) return tl::unexpected(ended.error());
    if (*ended != 0) return fail(ErrorClass::Failure, "virsh ended with {}", *ended);
    return one.moment == Moment::Borrowing ? use_new_drive() : Result<>();
  }
  const int errors = ledger_.errors();
  const int writes = ledger_.writes();
  if (io_) {
    Result<> noted;
    PCILEND_TRY(lab::eventually("the guest has written three more slots", kPatience, [&] {
      noted = note_io();
      return !noted || ledger_.writes() >= writes + 3 || io_->ended();
    }));
    if (!noted) return noted;
    PCILEND_TRY(end_io());
  }
  PCILEND_TRY(see_guest_use_its_drive(0s));
  if (ledger_.errors() != errors)
    return fail(ErrorClass::Failure, "the guest's I/O met an error, but nothing has happened");
  return {};
}

// The lender has ended the lease by itself, and reset the function.
Result<> FaultBench::see_function_come_back() {
  return await_state(lender(), "available");
}

Result<> FaultBench::see_link_up() const {
  for (const Host* host : {&lender(), &borrower()}) {
    const auto up = host->until(
        "pcilend link --json",
        [](const Output& output) {
          const json links = json::parse(output.out, nullptr, false);
          return links.is_object() && !links.at("links").empty() &&
                 links.at("links").at(0).at("state") == "up";
        },
        kPatience);
    if (!up) return tl::unexpected(Error(up.error()).in("the link does not come up"));
  }
  return {};
}

Result<> FaultBench::see_guest_lose_its_drive() {
  in_use_ = false;
  const auto lost = guest_->exec(
      "while [ -b /dev/nvme0n1 ] && "
      "dd if=/dev/nvme0n1 of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null; do sleep 0.1; done",
      {{}, kPatience});
  if (!lost)
    return tl::unexpected(Error(lost.error()).in("the guest's drive neither works nor fails"));
  return {};
}

// One that probes while the link is down gives up, as with a pulled cable, and is asked again.
Result<> FaultBench::see_driver_take_drive() {
  PCILEND_TRY(guest_->await_answer());
  PCILEND_TRY(guest_->run(R"sh(for i in $(seq 600); do
	[ -b /dev/nvme0n1 ] && exit 0
	for d in /sys/bus/pci/devices/*; do
		[ "$(cat $d/class)" = 0x010802 ] && [ ! -e $d/driver ] || continue
		echo ${d##*/} >/sys/bus/pci/drivers_probe
	done
	sleep 0.1
done
exit 1)sh"));
  return {};
}

Result<> FaultBench::see_guest_use_its_drive(std::chrono::milliseconds within) {
  const lab::Deadline deadline(within);
  const int first = ledger_.begin_run(2);
  for (;;) {
    const int errors = ledger_.errors();
    const int writes = ledger_.writes();
    const auto io = guest_->exec(write_script(first, 2), {{}, kPatience});
    if (!io) return tl::unexpected(io.error());
    PCILEND_TRY(ledger_.note_all(io->out));
    if (ledger_.errors() == errors && ledger_.writes() == writes + 2) return {};
    if (deadline.over())
      return fail(ErrorClass::Failure, "the guest can't use its drive: {}{}", io->out, io->err);
    std::this_thread::sleep_for(200ms);
  }
}

Result<int> FaultBench::see_step_end() {
  if (!step_) return fail(ErrorClass::Failure, "no virsh was begun");
  const auto ended = step_->wait();
  step_.reset();
  if (!ended) return tl::unexpected(Error(ended.error()).in("virsh hangs"));
  if (ended->code != 0 && ended->err.empty())
    return fail(ErrorClass::Failure, "virsh failed without a word");
  return ended->code;
}

Result<> FaultBench::note_io() {
  const std::string said = io_->output_so_far();
  const size_t end = said.rfind('\n');
  if (end == std::string::npos || end < noted_) return {};
  const size_t from = std::exchange(noted_, end + 1);
  return ledger_.note_all(std::string_view(said).substr(from, noted_ - from));
}

Result<> FaultBench::end_io() {
  if (!io_) return {};
  PCILEND_TRY(guest_->run(": >/tmp/stop", {{}, kPatience}));
  PCILEND_TRY(lab::eventually("the guest's I/O ends", kPatience, [&] { return io_->ended(); }));
  PCILEND_TRY(note_io());
  io_.reset();
  return {};
}

// ---- everything as before

Result<> FaultBench::restore(const FaultCase& one) {
  if (one.fault == Fault::Loss) PCILEND_TRY(lab_.fabric().link_up(1, 2));
  PCILEND_TRY(bring_back(one));
  if (is_quiet(one.fault)) PCILEND_TRY(tell_events(true));
  PCILEND_TRY(see_link_up());
  if (in_use_) return guest_is_clean();
  PCILEND_TRY(end_guest());
  PCILEND_TRY(offer());
  PCILEND_TRY(nothing_is_left());
  return start_guest();
}

// The host that was killed, and what hangs on it.
Result<> FaultBench::bring_back(const FaultCase& one) {
  std::future<Result<>> boot;
  if (is_dead(one, Victim::Lender) || is_dead(one, Victim::Borrower)) {
    Host& host = one.victim == Victim::Lender ? lender() : borrower();
    // Its last words are its own.
    if (one.fault == Fault::Panic) host.forget_log();
    boot = std::async(std::launch::async, [&host, fault = one.fault]() -> Result<> {
      if (is_reset(fault)) return host.machine().wait_until_up(lab::Deadline(kBoot));
      // Not by reset: a drive that works through a queue which is gone keeps QEMU from all else.
      if (fault == Fault::Panic) PCILEND_TRY(host.power_off());
      return host.power_on(kBoot);
    });
  }
  const auto meanwhile = [&]() -> Result<> {
    if (io_) {
      PCILEND_TRY(note_io());
      io_.reset();
    }
    step_.reset();
    if (is_dead(one, Victim::Borrower)) {
      guest_.reset();
      defined_ = false;
    }
    if (guest_ && !in_use_) return end_guest();
    return {};
  };
  const Result<> done = meanwhile();
  if (boot.valid()) PCILEND_TRY(boot.get());
  return done;
}

Result<> FaultBench::end_guest() {
  in_use_ = false;
  if (!guest_) return {};
  const auto state = guest_->state();
  if (!state) return tl::unexpected(state.error());
  if (*state != "shut off") {
    PCILEND_TRY(guest_is_clean());
    PCILEND_TRY(guest_->destroy());
  }
  guest_.reset();
  return {};
}

Result<json> FaultBench::bytes_in_use() const {
  json bytes;
  for (const Host* host : {&lender(), &borrower()}) {
    const auto links = host->json("pcilend link --json");
    if (!links) return tl::unexpected(links.error());
    for (const json& link : links->at("links")) {
      if (link.at("bad_messages") != 0)
        return fail(ErrorClass::Failure, "{} has received {} bad messages", host->name(),
                    link.at("bad_messages").dump());
      for (const char* what : {"export_bytes", "slot_bytes"})
        bytes[host->name()][what] = link.at(what);
    }
  }
  return bytes;
}

Result<> FaultBench::nothing_is_left() const {
  const auto bytes = bytes_in_use();
  if (!bytes) return tl::unexpected(bytes.error());
  for (const json& host : *bytes)
    for (const json& number : host)
      if (number != 0)
        return fail(ErrorClass::Failure, "nothing is borrowed, but in use are {}", bytes->dump());
  const auto left =
      borrower().run("ls /sys/bus/mdev/devices; ls /run/pcilend/domains 2>/dev/null; true");
  if (!left) return tl::unexpected(left.error());
  if (!left->empty())
    return fail(ErrorClass::Failure, "mdevs or records of the hook are left: {}", *left);
  return {};
}

Result<> FaultBench::use_is_as_ever() {
  const auto bytes = bytes_in_use();
  if (!bytes) return tl::unexpected(bytes.error());
  if (usual_bytes_.is_null()) usual_bytes_ = *bytes;
  if (*bytes != usual_bytes_)
    return fail(ErrorClass::Failure, "a guest uses {} of the apertures, another one {}",
                bytes->dump(), usual_bytes_.dump());
  return {};
}

Result<> FaultBench::guest_is_clean() const {
  const auto console = guest_->console();
  if (!console) return tl::unexpected(console.error());
  for (const lab::LogFinding& finding : lab::scan_kernel_log(*console))
    return fail(ErrorClass::Failure, "the guest's kernel complains: {}", finding.line);
  return {};
}

Result<> FaultBench::check_logs(const FaultCase& one) {
  return on_both([&](Host& host) -> Result<> {
    PCILEND_TRY(host.check_log(expected_in_log(host, one)));
    PCILEND_TRY(host.check_leaks());
    return host.mark_log();
  });
}

Result<> FaultBench::on_both(const std::function<Result<>(Host&)>& work) const {
  auto there = std::async(std::launch::async, [&] { return work(borrower()); });
  const Result<> here = work(lender());
  const Result<> done = there.get();
  return here ? done : here;
}

Result<json> FaultBench::function_on(const Host& host) const {
  return scenarios::function_on(host, id_);
}

Result<> FaultBench::await_state(const Host& host, const std::string& state) const {
  return scenarios::await_state(host, id_, state);
}

}  // namespace pcilend::scenarios
