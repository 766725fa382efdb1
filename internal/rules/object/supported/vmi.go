package supported

import "maps"

const (
	notByClaim  = "devices of claims don't get to guests; name a device plugin's resource in deviceName"
	onlyVirtual = "it is for virtual GPUs, which don't get to guests; a GPU that is passed whole has its own outputs"
)

// vmiTable is for VirtualMachineInstanceSpec, also in the template of a VirtualMachine or a
// VirtualMachineInstanceReplicaSet.
var vmiTable = merge(placementTable, domainTable, hypervTable, deviceTable, diskTable, interfaceTable, networkTable,
	volumeTable, credentialTable,
	cloudInitTable("volumes.cloudInitNoCloud"),
	cloudInitTable("volumes.cloudInitConfigDrive"),
	probeTable("livenessProbe"),
	probeTable("readinessProbe"))

func merge(tables ...table) table {
	all := table{}
	for _, t := range tables {
		maps.Copy(all, t)
	}
	return all
}

var placementTable = table{
	"priorityClassName":             yes(),
	"nodeSelector":                  yes(),
	"affinity":                      yes(),
	"serviceAccountName":            noted("of the launcher pod, which gets no token"),
	"schedulerName":                 yes(),
	"tolerations":                   yes(),
	"topologySpreadConstraints":     yes(),
	"evictionStrategy":              only("None", "LiveMigrate", "LiveMigrateIfPossible", "External"),
	"startStrategy":                 only("Paused", "Maintenance"),
	"terminationGracePeriodSeconds": yes(),
	"hostname":                      yes(),
	"subdomain":                     yes(),
	"dnsPolicy":                     yes(),
	"dnsConfig":                     yes(),
	"architecture":                  only("amd64"),
	"resourceClaims":                no("devices of claims don't get to guests; name a device plugin's resource in gpus or hostDevices, or use interfaces.sriov"),
	"utilityVolumes":                no("Drydock's components set them on a VMI, for [memory dumps](memory-dump.md)"),
}

var credentialTable = table{
	"accessCredentials.sshPublicKey.source.secret.secretName":               yes(),
	"accessCredentials.sshPublicKey.propagationMethod.noCloud":              noted("with a `cloudInitNoCloud` volume"),
	"accessCredentials.sshPublicKey.propagationMethod.configDrive":          noted("with a `cloudInitConfigDrive` volume"),
	"accessCredentials.sshPublicKey.propagationMethod.qemuGuestAgent.users": noted("the users' authorized_keys hold these keys and no others, [following the Secret](devices.md#while-the-guest-runs)"),
	"accessCredentials.userPassword.source.secret.secretName":               yes(),
	"accessCredentials.userPassword.propagationMethod.qemuGuestAgent":       noted("the Secret has a password for each user, and the guest [follows it](devices.md#while-the-guest-runs)"),
}

var domainTable = table{
	"domain.resources.requests":                yes(),
	"domain.resources.limits":                  yes(),
	"domain.resources.overcommitGuestOverhead": yes(),

	"domain.cpu.cores":                 yes(),
	"domain.cpu.sockets":               yes(),
	"domain.cpu.maxSockets":            yes(),
	"domain.cpu.threads":               yes(),
	"domain.cpu.model":                 noted("host-model and host-passthrough give an emulated guest all that QEMU can emulate"),
	"domain.cpu.features.name":         yes(),
	"domain.cpu.features.policy":       yes(),
	"domain.cpu.dedicatedCpuPlacement": noted("on [nodes with the kubelet's static CPU manager](cpu-pinning.md)"),
	"domain.cpu.numa":                  no("the guest gets no NUMA topology; the kubelet's topology manager can keep its CPUs and hugepages on one NUMA node"),
	"domain.cpu.isolateEmulatorThread": noted("with `dedicatedCpuPlacement`"),
	"domain.cpu.realtime":              no("virtual CPUs get no real-time priority; dedicatedCpuPlacement with isolateEmulatorThread keeps other threads from their CPUs"),

	"domain.memory.hugepages.pageSize":             yes(),
	"domain.memory.guest":                          yes(),
	"domain.memory.maxGuest":                       noted("as far as memory can be plugged, in multiples of 2Mi; not with hugepages"),
	"domain.memory.reservedOverhead.addedOverhead": yes(),
	"domain.memory.reservedOverhead.memLock":       only("NotRequired").idleFor("Required").because("a guest's memory is locked where a device of its node needs it"),

	"domain.machine.type": noted("q35 and its versions; a VM that names none is pinned to the version of its creation"),

	"domain.firmware.uuid":                                 yes(),
	"domain.firmware.serial":                               yes(),
	"domain.firmware.bootloader.bios.useSerial":            yes(),
	"domain.firmware.bootloader.efi.secureBoot":            noted("true unless set, and then needs domain.features.smm"),
	"domain.firmware.bootloader.efi.persistent":            yes(),
	"domain.firmware.kernelBoot.kernelArgs":                yes(),
	"domain.firmware.kernelBoot.container.image":           yes(),
	"domain.firmware.kernelBoot.container.imagePullSecret": yes(),
	"domain.firmware.kernelBoot.container.imagePullPolicy": yes(),
	"domain.firmware.kernelBoot.container.kernelPath":      yes(),
	"domain.firmware.kernelBoot.container.initrdPath":      yes(),
	"domain.firmware.acpi":                                 no("the guest gets the tables of its machine only"),

	"domain.clock.utc.offsetSeconds":               yes(),
	"domain.clock.timezone":                        yes(),
	"domain.clock.timer.hpet.tickPolicy":           only("delay"),
	"domain.clock.timer.hpet.present":              yes(),
	"domain.clock.timer.kvm.present":               yes(),
	"domain.clock.timer.pit.tickPolicy":            only("delay", "discard"),
	"domain.clock.timer.pit.present":               yes(),
	"domain.clock.timer.rtc.tickPolicy":            yes(),
	"domain.clock.timer.rtc.present":               only("true").because("a q35 machine has its clock"),
	"domain.clock.timer.rtc.track":                 yes(),
	"domain.clock.timer.hyperv.present":            yes(),
	"domain.features.acpi.enabled":                 yes(),
	"domain.features.apic.enabled":                 yes(),
	"domain.features.apic.endOfInterrupt":          yes(),
	"domain.features.smm.enabled":                  yes(),
	"domain.features.kvm.hidden":                   yes(),
	"domain.features.pvspinlock.enabled":           yes(),
	"domain.ioThreadsPolicy":                       only("shared", "auto", "supplementalPool").because("with supplementalPool the disks take the threads of the pool in turn, and each one stays with its thread"),
	"domain.ioThreads.supplementalPoolThreadCount": noted("with supplementalPool"),
	"domain.chassis.manufacturer":                  yes(),
	"domain.chassis.version":                       yes(),
	"domain.chassis.serial":                        yes(),
	"domain.chassis.asset":                         yes(),
	"domain.chassis.sku":                           yes(),
	"domain.launchSecurity":                        no("guests' memory is not encrypted"),
	"domain.rebootPolicy":                          yes(),
	"domain.devices.useVirtioTransitional":         yes(),
}

var hypervTable = table{
	"domain.features.hypervPassthrough.enabled":        passed(),
	"domain.features.hyperv.relaxed.enabled":           passed(),
	"domain.features.hyperv.vapic.enabled":             passed(),
	"domain.features.hyperv.spinlocks.enabled":         passed(),
	"domain.features.hyperv.spinlocks.spinlocks":       passed(),
	"domain.features.hyperv.vpindex.enabled":           passed(),
	"domain.features.hyperv.runtime.enabled":           passed(),
	"domain.features.hyperv.synic.enabled":             passed(),
	"domain.features.hyperv.synictimer.enabled":        passed(),
	"domain.features.hyperv.synictimer.direct.enabled": passed(),
	"domain.features.hyperv.reset.enabled":             passed(),
	"domain.features.hyperv.vendorid.enabled":          passed(),
	"domain.features.hyperv.vendorid.vendorid":         passed(),
	"domain.features.hyperv.frequencies.enabled":       passed(),
	"domain.features.hyperv.reenlightenment.enabled":   passed(),
	"domain.features.hyperv.tlbflush.enabled":          passed(),
	"domain.features.hyperv.tlbflush.direct.enabled":   passed(),
	"domain.features.hyperv.tlbflush.extended.enabled": passed(),
	"domain.features.hyperv.ipi.enabled":               passed(),
	"domain.features.hyperv.evmcs.enabled":             passed(),
}

// passed is a feature of KVM that an emulated guest lacks.
func passed() entry { return noted("with hardware virtualization; an emulated guest does without") }

var deviceTable = table{
	"domain.devices.disableHotplug":             yes(),
	"domain.devices.watchdog.name":              yes(),
	"domain.devices.watchdog.i6300esb.action":   yes(),
	"domain.devices.watchdog.diag288":           no("of other architectures; use i6300esb"),
	"domain.devices.inputs.bus":                 yes(),
	"domain.devices.inputs.type":                yes(),
	"domain.devices.inputs.name":                yes(),
	"domain.devices.autoattachPodInterface":     yes(),
	"domain.devices.autoattachGraphicsDevice":   yes(),
	"domain.devices.autoattachSerialConsole":    yes(),
	"domain.devices.logSerialConsole":           noted("`false` if not set; `kubectl logs POD -c guest-console-log`"),
	"domain.devices.autoattachMemBalloon":       yes(),
	"domain.devices.autoattachInputDevice":      yes(),
	"domain.devices.autoattachVSOCK":            off().because("use the guest agent, or the network"),
	"domain.devices.rng":                        yes(),
	"domain.devices.blockMultiQueue":            yes(),
	"domain.devices.networkInterfaceMultiqueue": yes(),
	"domain.devices.gpus.name":                  noted("[devices of the node](devices.md#devices-of-the-node)"),
	"domain.devices.gpus.deviceName":            noted("a resource of the KubeVirt object's `permittedHostDevices.pciHostDevices`"),
	"domain.devices.gpus.claimName":             no(notByClaim),
	"domain.devices.gpus.requestName":           no(notByClaim),
	"domain.devices.gpus.virtualGPUOptions":     no(onlyVirtual),
	"domain.devices.gpus.tag":                   noted("in `meta_data.json` of a `cloudInitConfigDrive` volume"),
	"domain.devices.downwardMetrics":            noted("with the feature gate DownwardMetrics"),
	"domain.devices.panicDevices.model":         yes(),
	"domain.devices.filesystems.name":           noted("[folders that a guest shares](shared-folders.md)"),
	"domain.devices.filesystems.virtiofs":       yes(),
	"domain.devices.hostDevices.name":           noted("[devices of the node](devices.md#devices-of-the-node)"),
	"domain.devices.hostDevices.deviceName":     noted("a resource of the KubeVirt object's `permittedHostDevices.pciHostDevices`"),
	"domain.devices.hostDevices.claimName":      no(notByClaim),
	"domain.devices.hostDevices.requestName":    no(notByClaim),
	"domain.devices.hostDevices.tag":            noted("in `meta_data.json` of a `cloudInitConfigDrive` volume"),
	"domain.devices.clientPassthrough":          no("USB devices of clients don't get to guests"),
	"domain.devices.sound.name":                 yes(),
	"domain.devices.sound.model":                noted("heard by [VNC clients that can play sound](console-and-vnc.md)"),
	"domain.devices.tpm.enabled":                noted("true unless set"),
	"domain.devices.tpm.persistent":             yes(),
	"domain.devices.video.type":                 yes(),
}

var diskTable = table{
	"domain.devices.disks.name":                                yes(),
	"domain.devices.disks.disk.bus":                            noted("sata unless set"),
	"domain.devices.disks.disk.readonly":                       yes(),
	"domain.devices.disks.disk.pciAddress":                     yes(),
	"domain.devices.disks.lun.bus":                             only("scsi"),
	"domain.devices.disks.lun.readonly":                        yes(),
	"domain.devices.disks.lun.reservation":                     off().because("a guest can't reserve a LUN for itself"),
	"domain.devices.disks.cdrom.bus":                           noted("sata unless set"),
	"domain.devices.disks.cdrom.readonly":                      only("true").idleFor("false").because("nothing writes to a CD-ROM"),
	"domain.devices.disks.cdrom.tray":                          only("closed"),
	"domain.devices.disks.bootOrder":                           yes(),
	"domain.devices.disks.serial":                              yes(),
	"domain.devices.disks.dedicatedIOThread":                   noted("on the bus virtio"),
	"domain.devices.disks.cache":                               yes(),
	"domain.devices.disks.io":                                  yes(),
	"domain.devices.disks.tag":                                 idle("the metadata of a guest does not tell disks' tags"),
	"domain.devices.disks.blockSize.custom.logical":            yes(),
	"domain.devices.disks.blockSize.custom.physical":           yes(),
	"domain.devices.disks.blockSize.custom.discardGranularity": yes(),
	"domain.devices.disks.blockSize.matchVolume.enabled":       yes(),
	"domain.devices.disks.shareable":                           yes(),
	"domain.devices.disks.errorPolicy":                         yes(),
	"domain.devices.disks.changedBlockTracking":                only("false").idleFor("true").because("there are no backups by changed blocks; snapshots are whole"),
}

var interfaceTable = table{
	"domain.devices.interfaces.name":                              yes(),
	"domain.devices.interfaces.model":                             yes(),
	"domain.devices.interfaces.bridge":                            yes(),
	"domain.devices.interfaces.slirp":                             no("use masquerade"),
	"domain.devices.interfaces.masquerade":                        yes(),
	"domain.devices.interfaces.sriov":                             noted("on a multus network whose NetworkAttachmentDefinition names a device plugin's resource"),
	"domain.devices.interfaces.macvtap":                           no("register a network binding for it and use binding.name, see networking.md"),
	"domain.devices.interfaces.passt":                             no("use masquerade"),
	"domain.devices.interfaces.passtBinding":                      no("use masquerade"),
	"domain.devices.interfaces.binding.name":                      noted("a binding that the KubeVirt object registers"),
	"domain.devices.interfaces.ports.name":                        yes(),
	"domain.devices.interfaces.ports.protocol":                    yes(),
	"domain.devices.interfaces.ports.port":                        yes(),
	"domain.devices.interfaces.portRanges.protocol":               noted("with `masquerade`, without `ports`"),
	"domain.devices.interfaces.portRanges.start":                  yes(),
	"domain.devices.interfaces.portRanges.end":                    yes(),
	"domain.devices.interfaces.macAddress":                        yes(),
	"domain.devices.interfaces.bootOrder":                         yes(),
	"domain.devices.interfaces.pciAddress":                        yes(),
	"domain.devices.interfaces.dhcpOptions.bootFileName":          yes(),
	"domain.devices.interfaces.dhcpOptions.tftpServerName":        yes(),
	"domain.devices.interfaces.dhcpOptions.ntpServers":            yes(),
	"domain.devices.interfaces.dhcpOptions.privateOptions.option": yes(),
	"domain.devices.interfaces.dhcpOptions.privateOptions.value":  yes(),
	"domain.devices.interfaces.tag":                               noted("as one of the `devices` in `meta_data.json` of a `cloudInitConfigDrive` volume; " + fromStart),
	"domain.devices.interfaces.acpiIndex":                         yes(),
	"domain.devices.interfaces.state":                             only("up", "down", "absent").because("live-update.md"),
}

var networkTable = table{
	"networks.name":                  yes(),
	"networks.pod.vmNetworkCIDR":     yes(),
	"networks.pod.vmIPv6NetworkCIDR": yes(),
	"networks.multus.networkName":    noted("connected by `bridge`"),
	"networks.multus.default":        off().because("make it a network beside the pod's, or the pods' network of the namespace"),
	"networks.resourceClaim":         no("use multus, with sriov for a NIC of the node"),
}

var volumeTable = table{
	"volumes.name":                               yes(),
	"volumes.hostDisk.path":                      yes(),
	"volumes.hostDisk.type":                      yes(),
	"volumes.hostDisk.capacity":                  yes(),
	"volumes.hostDisk.shared":                    off().because("a live migration copies the file to the other node, which is no copy where both are the same"),
	"volumes.persistentVolumeClaim.claimName":    yes(),
	"volumes.persistentVolumeClaim.readOnly":     yes(),
	"volumes.persistentVolumeClaim.hotpluggable": yes(),
	"volumes.sysprep.secret":                     yes(),
	"volumes.sysprep.configMap":                  yes(),
	"volumes.containerDisk.image":                yes(),
	"volumes.containerDisk.imagePullSecret":      yes(),
	"volumes.containerDisk.path":                 yes(),
	"volumes.containerDisk.imagePullPolicy":      yes(),
	"volumes.ephemeral.persistentVolumeClaim":    yes(),
	"volumes.emptyDisk.capacity":                 yes(),
	"volumes.dataVolume.name":                    noted("the claim of the same name, when the DataVolume has filled it"),
	"volumes.dataVolume.hotpluggable":            yes(),
	"volumes.configMap.name":                     yes(),
	"volumes.configMap.optional":                 yes(),
	"volumes.configMap.volumeLabel":              yes(),
	"volumes.secret.secretName":                  yes(),
	"volumes.secret.optional":                    yes(),
	"volumes.secret.volumeLabel":                 yes(),
	"volumes.downwardAPI.fields":                 yes(),
	"volumes.downwardAPI.volumeLabel":            yes(),
	"volumes.serviceAccount.serviceAccountName":  yes(),
	"volumes.downwardMetrics":                    noted("with the feature gate DownwardMetrics; virtio unless a bus is set"),
	"volumes.memoryDump":                         no("`virtctl memory-dump get` [dumps a guest's memory](memory-dump.md) without a volume in the spec"),
	"volumes.containerPath":                      no("guests share no folders; configMap, secret, serviceAccount and downwardAPI are disks"),
}

// Both kinds of cloud-init volume have the same fields.
func cloudInitTable(at string) table {
	return table{
		at + ".secretRef":            yes(),
		at + ".userDataBase64":       yes(),
		at + ".userData":             yes(),
		at + ".networkDataSecretRef": yes(),
		at + ".networkDataBase64":    yes(),
		at + ".networkData":          yes(),
	}
}

func probeTable(at string) table {
	return table{
		at + ".exec":                noted("run in the guest by its agent"),
		at + ".guestAgentPing":      yes(),
		at + ".httpGet":             yes(),
		at + ".tcpSocket":           yes(),
		at + ".initialDelaySeconds": yes(),
		at + ".timeoutSeconds":      yes(),
		at + ".periodSeconds":       yes(),
		at + ".successThreshold":    yes(),
		at + ".failureThreshold":    yes(),
	}
}
