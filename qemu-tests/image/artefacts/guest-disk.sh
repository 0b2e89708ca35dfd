# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# A disk with a Debian that is installed on it: systemd, the kernel's package, an initramfs of its own, GRUB
# for BIOS and for UEFI. When it is up it says so (guest-disk/up), and powers off. Not part of the lab;
# scenarios have it as a drive.
#   guest-disk.img   GPT: 1 GRUB's core for BIOS, 2 EFI system partition, 3 ext4 (label "installed")
title='disk with an installed Debian'
needs=(base kernel@6.12)
inputs=(lib/tree.sh lib/disk.sh packages/guest-disk.txt packages/disk.txt guest-disk)

# In sectors; the rest of the disk is the root file system's.
bios_at=2048 bios_sectors=2048
esp_at=4096 esp_sectors=16384
root_at=20480 root_mib=448
early_modules=(part_gpt ext2 search_label normal configfile linux serial terminal test echo)

build() {
	local tree=$out/tree tools=$out/tools disk=$out/guest-disk.img
	mkdir "$tree" "$tools"
	install_system "$tree"
	copy_tree "$need_base" "$tools"
	# shellcheck disable=SC2046
	install_packages "$tools" $(packages disk)
	make_ext4 "$tools" "$tree" "$out/root.ext4" "${root_mib}M" installed -J size=4

	truncate -s $((root_at * 512 + (root_mib + 1) * 1048576)) "$disk"
	local -a binds=("$out" /mnt "$image_dir/guest-disk" /media)
	in_tree "$tools" sfdisk -q /mnt/guest-disk.img <<-END
		label: gpt
		start=$bios_at, size=$bios_sectors, type=21686148-6449-6E6F-744E-656564454649
		start=$esp_at, size=$esp_sectors, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B
		start=$root_at, size=$((root_mib * 2048)), type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709
	END
	dd if="$out/root.ext4" of="$disk" bs=512 seek=$root_at conv=notrunc,sparse status=none
	install_grub_for_bios
	install_grub_for_uefi
	rm -rf "$tree" "$tools" "$out"/{root.ext4,esp.fat,core.img,grub.efi}
}

# As the installer would, but for modules of what no VM has.
install_system() { # TREE
	local -a binds=("$need_kernel/packages" /mnt)
	local kernel generator
	kernel=$(basename "$need_kernel"/packages/linux-image-*.deb)
	copy_tree "$need_base" "$1"
	printf '%s\n' path-exclude=/usr/lib/modules/'*'/kernel/{drivers,sound,net}/'*' \
		path-include=/usr/lib/modules/'*'/kernel/drivers/{nvme,virtio}/'*' >"$1/etc/dpkg/dpkg.cfg.d/modules"
	# shellcheck disable=SC2046
	install_packages "$1" $(packages guest-disk)
	install_packages "$1" "/mnt/$kernel"
	# tiny-initramfs takes modules as they are, and loads none that is compressed.
	# shellcheck disable=SC2016
	in_tree "$1" sh -ec 'version=$(ls /usr/lib/modules)
		find /usr/lib/modules -name "*.ko.xz" -exec unxz {} +
		depmod "$version"
		mktirfs -m no -M no --include-modules=nvme,ext4 -o "/boot/initrd.img-$version" "$version"'

	install -D -m 644 "$image_dir/guest-disk/grub.cfg" "$1/boot/grub/grub.cfg"
	install -D -m 755 "$image_dir/guest-disk/up" "$1/usr/local/sbin/up"
	install -m 644 "$image_dir/guest-disk/up.service" "$1/etc/systemd/system/up.service"
	# Nothing here is made by generators, and each is a process that is emulated twice.
	mkdir "$1/etc/systemd/system-generators"
	for generator in "$1"/usr/lib/systemd/system-generators/*; do
		ln -s /dev/null "$1/etc/systemd/system-generators/${generator##*/}"
	done
	echo installed >"$1/etc/hostname"
	echo '/dev/nvme0n1p3 / ext4 defaults 0 0' >"$1/etc/fstab"
	lean_tree "$1"
	# Else the first boot rebuilds indices.
	touch -r "$1/usr" "$1"/{etc,var}/.updated
}

grub_image() { # FORMAT FILE MODULES...
	in_tree "$tools" grub-mkimage -O "$1" -o "/mnt/$2" -c /media/early.cfg -p /boot/grub \
		"${early_modules[@]}" "${@:3}"
}

# What grub-bios-setup does to a disk: the boot sector has where the core is (offset 0x5c), and the core's
# first sector where its rest is (0x1f4).
install_grub_for_bios() {
	grub_image i386-pc core.img biosdisk
	(($(stat -c %s "$out/core.img") <= bios_sectors * 512))
	dd if="$tools/usr/lib/grub/i386-pc/boot.img" of="$disk" bs=440 count=1 conv=notrunc status=none
	put_sector $bios_at "$disk" $((0x5c))
	put_sector $((bios_at + 1)) "$out/core.img" $((0x1f4))
	dd if="$out/core.img" of="$disk" bs=512 seek=$bios_at conv=notrunc status=none
}

put_sector() { # NUMBER FILE OFFSET: 8 bytes, little-endian; numbers up to 65535
	# shellcheck disable=SC2059
	printf "$(printf '\\x%02x' $(($1 & 255)) $(($1 >> 8)) 0 0 0 0 0 0)" |
		dd of="$2" bs=1 seek="$3" conv=notrunc status=none
}

install_grub_for_uefi() {
	grub_image x86_64-efi grub.efi
	truncate -s $((esp_sectors * 512)) "$out/esp.fat"
	in_tree "$tools" sh -ec 'mformat -i /mnt/esp.fat :: && mmd -i /mnt/esp.fat ::/EFI ::/EFI/BOOT &&
		mcopy -i /mnt/esp.fat /mnt/grub.efi ::/EFI/BOOT/BOOTX64.EFI'
	dd if="$out/esp.fat" of="$disk" bs=512 seek=$esp_at conv=notrunc status=none
}
