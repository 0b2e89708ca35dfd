# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# The first boot of a host VM's disk.

# warm_disk DISK DIR FIRST-BOOT SECONDS: boots DISK for good, with the CPU model the lab uses, lets
# libvirt probe QEMU and keep what it found, and powers off. Proves that the image boots, and
# saves each host VM 3 s. DIR is for scratch files; FIRST-BOOT is run in place of the agent, and has so
# many seconds. Called from artefacts/root.sh and artefacts/installed.sh.
warm_disk() {
	local disk=$1 dir=$2 console=$2/console
	local lab=$dir/first/payload/usr/lib/pcilend-lab
	mkdir -p "$lab"
	install -m 755 "$3" "$lab/agent"
	{
		cat "$need_initrd/initrd"
		make_cpio "$need_host_tree/usr/bin/busybox" "$dir/first"
	} >"$dir/first.initrd"

	timeout -k 5 "$4" "$need_qemu/qemu-system-x86_64" -M q35,sata=off,smbus=off -accel tcg,thread=multi \
		-cpu EPYC,+svm -smp 1 -m 1024 -nodefaults -display none -no-reboot -serial "file:$console" \
		-kernel "$need_kernel/vmlinux" -initrd "$dir/first.initrd" \
		-append 'console=ttyS0 quiet panic=-1 mitigations=off nokaslr no_timer_check tsc=reliable lab.host=first' \
		-drive "file=$disk,if=virtio,format=raw,cache=unsafe" </dev/null
	if ! grep -q 'pcilend-lab: first boot complete' "$console"; then
		printf 'the first boot of the host VM failed; its console:\n'
		tail -n 40 "$console"
		return 1
	fi
}
