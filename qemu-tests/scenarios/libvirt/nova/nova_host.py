#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Nova's driver for libvirt as a service of a host: what nova-compute does with mediated and PCI devices,
without the rest of a cloud.

  nova_host.py serve SOCKET KERNEL RAMDISK ARGUMENTS
                    makes the driver by /etc/nova/nova.conf, runs its init_host(), and what a host that
                    was booted resumes; instances boot that kernel with these arguments
  nova_host.py ask SOCKET COMMAND [NUMBER|ADDRESS...]
                    prints what Compute.COMMAND answers, as JSON: {"answer": ...}, or {"error": CLASS,
                    "message": ...} if Nova has raised that

Nova's code is Debian's. Replaced is what would be asked over the network: the database (Nova's objects of
what this host has), Glance (images are files of this host) and Neutron (instances have no network); and
privsep's daemon, since this is root."""

import json
import os
import shutil
import signal
import socket
import sys
import uuid


def ask(path, *command):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(json.dumps(command).encode() + b"\n")
        with connection.makefile() as answer:
            text = answer.read()
    print(text)
    return 0 if text else 1


class Images:
    """Glance: images are files."""

    def __init__(self, **files):
        self.ids = {name: str(uuid.uuid5(uuid.NAMESPACE_OID, name)) for name in files}
        self.files = {self.ids[name]: file for name, file in files.items()}

    def download(self, context, image, dest_path=None, trusted_certs=None, **rest):
        shutil.copyfile(self.files[image], dest_path)

    def get(self, context, image, **rest):
        return {"id": image, "disk_format": "raw", "container_format": "bare"}


class Compute:
    def __init__(self, kernel, ramdisk, arguments):
        from nova import config, context, objects
        import nova.conf
        import nova.conf.neutron
        import nova.privsep
        from nova.compute import provider_tree
        from nova.virt import fake, images
        from nova.virt.libvirt import driver
        from oslo_log import log

        config.parse_args(["nova-compute", "--config-file", "/etc/nova/nova.conf"],
                          configure_db=False, init_rpc=False)
        self.conf = nova.conf.CONF
        nova.conf.neutron.register_dynamic_opts(self.conf)
        log.setup(self.conf, "nova")
        nova.privsep.sys_admin_pctxt.set_client_mode(False)
        objects.register_all()
        self.objects = objects
        self.context = context.get_admin_context()
        self.arguments = arguments
        os.makedirs(self.conf.instances_path, exist_ok=True)
        # An instance has a disk of its own besides what it borrows.
        disk = os.path.join(self.conf.state_path, "disk.raw")
        with open(disk, "wb") as file:
            file.truncate(1 << 20)
        images.IMAGE_API = self.images = Images(disk=disk, kernel=kernel, ramdisk=ramdisk)
        self.instances = {}
        self.node = socket.gethostname()
        self.replace_database()

        self.tree = provider_tree.ProviderTree()
        self.tree.new_root(self.node, str(uuid.uuid4()))
        self.driver = driver.LibvirtDriver(fake.FakeVirtAPI(), False)
        self.driver.init_host(self.node)
        if self.conf.resume_guests_state_on_host_boot:
            self.resume()
        self.tracker = None
        self.inventory()

    def replace_database(self):
        objects = self.objects

        def none_of(kind):
            return lambda *arguments, **rest: kind(objects=[])

        objects.Instance.save = objects.Service.save = lambda made, *arguments, **rest: None
        objects.InstanceList.get_by_host = lambda *arguments, **rest: objects.InstanceList(
            objects=[self.instance(int(name.split("-")[1], 16))
                     for name in self.driver.list_instances() if name.startswith("instance-")])
        for kind in ("BlockDeviceMappingList", "VirtualInterfaceList", "ShareMappingList"):
            getattr(objects, kind).get_by_instance_uuid = none_of(getattr(objects, kind))
        objects.PciDeviceList.get_by_compute_node = none_of(objects.PciDeviceList)
        objects.Service.get_by_compute_host = lambda *arguments, **rest: objects.Service(
            host=self.node, disabled=False, disabled_reason=None,
            compute_node=objects.ComputeNode(uuid=str(uuid.uuid4())))

    # What the manager of nova-compute does with instances that have run, by the database.
    def resume(self):
        from nova.network import model

        for instance in self.objects.InstanceList.get_by_host():
            self.driver.resume_state_on_host_boot(
                self.context, instance, model.NetworkInfo([]), self.objects.ShareMappingList(objects=[]))

    # What the API would have made of a flavor and an image. Of a number it is the same after each start.
    def instance(self, number):
        if number in self.instances:
            return self.instances[number]
        from nova.network import model

        objects = self.objects
        made = objects.Instance(self.context)
        for name, field in made.fields.items():
            if field.nullable:
                setattr(made, name, None)
        made.id = number
        made.uuid = str(uuid.uuid5(uuid.NAMESPACE_OID, "instance %d" % number))
        made.display_name = "instance %d" % number
        made.user_id = made.project_id = "pcilend"
        made.host = made.node = self.node
        made.image_ref = self.images.ids["disk"]
        made.kernel_id = self.images.ids["kernel"]
        made.ramdisk_id = self.images.ids["ramdisk"]
        made.flavor = objects.Flavor(
            id=1, name="borrowed", flavorid="borrowed", memory_mb=256, vcpus=1, root_gb=0, ephemeral_gb=0,
            swap=0, rxtx_factor=1.0, vcpu_weight=None, disabled=False, is_public=True, description=None,
            extra_specs={}, projects=[])
        made.metadata = {}
        made.system_metadata = {
            "image_base_image_ref": made.image_ref, "image_disk_format": "raw",
            "image_container_format": "bare", "image_min_ram": "0", "image_min_disk": "0",
            "image_os_command_line": self.arguments}
        made.info_cache = objects.InstanceInfoCache(network_info=model.NetworkInfo([]))
        made.pci_devices = objects.PciDeviceList(objects=[])
        made.pci_requests = objects.InstancePCIRequests(instance_uuid=made.uuid, requests=[])
        made.tags = objects.TagList(objects=[])
        made.locked = made.auto_disk_config = made.shutdown_terminate = made.disable_terminate = False
        made.cleaned = made.hidden = False
        self.instances[number] = made
        return made

    # The resource tracker's periodic task: what Placement is told.
    def inventory(self):
        self.driver.update_provider_tree(self.tree, self.node)
        totals = {}
        for provider in self.tree.get_provider_uuids(self.node):
            data = self.tree.data(provider)
            for resource, inventory in data.inventory.items():
                if resource.startswith("CUSTOM_"):
                    self.provider, self.resource = provider, resource
                    totals[data.name] = inventory["total"]
        return {"total": sum(totals.values()), "providers": totals,
                "devices": sorted(device["uuid"] for device in self.driver._get_mediated_devices()),
                "assigned": self.driver._get_all_assigned_mediated_devices()}

    def allocations(self):
        return {self.provider: {"resources": {self.resource: 1}}}

    def allocate(self):
        return self.driver._allocate_mdevs(self.allocations())

    def spawn(self, number):
        return self.start(self.instance(int(number)), self.allocations())

    def start(self, instance, allocations):
        from nova.network import model

        self.driver.spawn(self.context, instance, instance.image_meta, [], None, allocations,
                          network_info=model.NetworkInfo([]))
        return self.state(instance)

    def hard_reboot(self, number):
        from nova.network import model

        instance = self.instance(int(number))
        self.driver.reboot(self.context, instance, model.NetworkInfo([]), "HARD")
        return self.state(instance)

    def destroy(self, number):
        from nova.network import model

        instance = self.instance(int(number))
        self.driver.destroy(self.context, instance, model.NetworkInfo([]))
        del self.instances[int(number)]
        return self.driver.list_instances()

    def state(self, instance):
        return {"name": instance.name, "uuid": instance.uuid,
                "state": self.driver.get_info(instance).state,
                "devices": sorted(self.driver._get_all_assigned_mediated_devices(instance))}

    def show(self, number):
        return self.state(self.instance(int(number)))

    def console(self, number):
        output = self.driver.get_console_output(self.context, self.instance(int(number)))
        return output.decode(errors="replace") if isinstance(output, bytes) else output

    # What the resource tracker does with the host's PCI devices: those that [pci] device_spec takes.
    def pci(self):
        from nova.pci import manager

        found = self.driver._get_pci_passthrough_devices()
        if not self.tracker:
            self.tracker = manager.PciDevTracker(
                self.context, self.objects.ComputeNode(id=1, numa_topology=None))
        self.tracker.update_devices_from_hypervisor_resources(found)
        return {"listed": sorted(device["address"] for device in json.loads(found)),
                "tracked": {device.address: device.status for device in self.tracker.pci_devs},
                "pools": sum(pool["count"] for pool in self.tracker.pci_stats.pools)}

    def spawn_with_pci(self, number):
        from nova.pci import request

        instance = self.instance(int(number))
        instance.flavor.extra_specs = {"pci_passthrough:alias": "borrowed:1"}
        requests = request.get_pci_requests_from_flavor(instance.flavor)
        requests.instance_uuid = instance.uuid
        instance.pci_requests = requests
        devices = self.tracker.claim_instance(self.context, requests, None)
        self.tracker.allocate_instance(instance)
        instance.pci_devices = self.objects.PciDeviceList(objects=devices)
        return self.start(instance, {})


def serve(path, *settings):
    import nova.monkey_patch  # noqa: F401  before all others of Nova, as nova-compute does

    # Reading an instance's console makes it the terminal of this process, which in Nova is privsep's
    # daemon; the end of the instance hangs it up.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    compute = Compute(*settings)
    if os.path.exists(path):
        os.unlink(path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        while True:
            connection, _ = listener.accept()
            with connection, connection.makefile("rw") as stream:
                name, *arguments = json.loads(stream.readline())
                try:
                    answer = {"answer": getattr(compute, name)(*arguments)}
                except Exception as error:
                    import logging
                    logging.getLogger("nova").exception("%s", name)
                    answer = {"error": type(error).__name__, "message": str(error)}
                json.dump(answer, stream)


if __name__ == "__main__":
    sys.exit({"ask": ask, "serve": serve}[sys.argv[1]](*sys.argv[2:]))
