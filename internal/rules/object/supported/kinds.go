package supported

import "drydock.dev/drydock/internal/rules/cluster/clusterconfig"

// vmTable is for VirtualMachineSpec; vmiTable is for the fields below template.spec, and dataVolumeTable for
// those below dataVolumeTemplates.spec.
var vmTable = table{
	"running":                                   noted("the older form of runStrategy; not both"),
	"runStrategy":                               only("Always", "RerunOnFailure", "Once", "Manual", "Halted"),
	"instancetype.name":                         yes(),
	"instancetype.kind":                         noted("VirtualMachineClusterInstancetype if not set"),
	"instancetype.revisionName":                 noted("a ControllerRevision of the VM's namespace"),
	"instancetype.inferFromVolume":              noted(inferred),
	"instancetype.inferFromVolumeFailurePolicy": only("Reject", "Ignore"),
	"preference.name":                           yes(),
	"preference.kind":                           noted("VirtualMachineClusterPreference if not set"),
	"preference.revisionName":                   noted("a ControllerRevision of the VM's namespace"),
	"preference.inferFromVolume":                noted(inferred),
	"preference.inferFromVolumeFailurePolicy":   only("Reject", "Ignore"),
	"template.metadata":                         noted("labels and annotations; a name and a namespace have no effect"),
	"template.spec":                             noted("as the spec of a VirtualMachineInstance"),
	"dataVolumeTemplates.kind":                  noted("without effect"),
	"dataVolumeTemplates.apiVersion":            noted("without effect"),
	"dataVolumeTemplates.metadata":              noted("name, labels and annotations"),
	"dataVolumeTemplates.spec":                  noted("as the spec of a DataVolume"),
	"dataVolumeTemplates.status":                noted("without effect"),
	"updateVolumesStrategy": only("Replacement", "Migration").because("Migration copies the disks to the other claims while the guest runs; " +
		"Replacement, which is the default, has the VM use them after a restart"),
}

const inferred = "from the labels of the volume's claim or DataVolume, or of what that is made from"

var replicaSetTable = table{
	"replicas":          yes(),
	"selector":          yes(),
	"template.metadata": noted("labels and annotations; a name and a namespace have no effect"),
	"template.spec":     noted("as the spec of a VirtualMachineInstance"),
	"paused":            yes(),
}

var migrationTable = table{
	"vmiName":           yes(),
	"addedNodeSelector": noted("restricts where the guest goes to; of a label that the VMI selects itself, the VMI's value counts"),
	"sendTo":            no("guests migrate within their cluster"),
	"receive":           no("guests migrate within their cluster"),
	"priority":          only("system-critical", "user-triggered", "system-maintenance").because("users' migrations are `user-triggered`"),
}

var migrationPolicyTable = table{
	"selectors.namespaceSelector":              noted("labels, all of which the namespace has"),
	"selectors.virtualMachineInstanceSelector": noted("labels, all of which the VMI has"),
	"allowAutoConverge":                        yes(),
	"bandwidthPerMigration":                    noted("bytes in a second; 0 for no limit"),
	"completionTimeoutPerGiB":                  noted("seconds; 0 for no limit"),
	"maxDowntimeMs":                            noted(downtime),
	"experimental":                             no("how QEMU migrates is decided by what the migration needs, see migration.md"),
	"allowPostCopy":                            noted(postCopy),
	"allowWorkloadDisruption":                  noted(disruption),
}

// snapshotTable and restoreTable have no check: each field is supported, and the policies in
// config/rbac/snapshot-policy.yaml validate the values.
var snapshotTable = table{
	"source":          noted("a VirtualMachine that is stopped"),
	"deletionPolicy":  noted("Delete if not set; with every other value the content stays"),
	"failureDeadline": noted("5m if not set; 0 for no limit"),
}

var restoreTable = table{
	"target":                             noted("the snapshot's own VirtualMachine, or the name of one that does not exist"),
	"virtualMachineSnapshotName":         yes(),
	"targetReadinessPolicy":              only("StopTarget", "WaitGracePeriod", "FailImmediate", "WaitEventually"),
	"volumeRestorePolicy":                only("RandomizeNames", "InPlace", "PrefixTargetName"),
	"volumeOwnershipPolicy":              only("Vm", "None"),
	"volumeRestoreOverrides.volumeName":  yes(),
	"volumeRestoreOverrides.restoreName": yes(),
	"volumeRestoreOverrides.labels":      yes(),
	"volumeRestoreOverrides.annotations": yes(),
	"patches":                            noted("for a VM that is made; add, replace, remove and test"),
}

// cloneTable has no check either: the policy in config/rbac/clone-policy.yaml validates the values.
var cloneTable = table{
	"source":                     only("VirtualMachine", "VirtualMachineSnapshot"),
	"target":                     noted("the name of a VirtualMachine that does not exist; generated if not set"),
	"labelFilters":               yes(),
	"annotationFilters":          yes(),
	"template.labelFilters":      yes(),
	"template.annotationFilters": yes(),
	"newMacAddresses":            yes(),
	"newSMBiosSerial":            noted("the clone's UID if not set and the source has one"),
	"patches":                    noted("of spec, labels and annotations; add, replace, remove and test"),
	"volumeNamePolicy":           only("RandomizeNames", "PrefixTargetName"),
}

const postCopy = "where QEMU at the target has userfaultfd, else the guest is stopped; it allows allowWorkloadDisruption where that is not set"

const downtime = "100 if not set"

const disruption = "stops a guest whose migration is not done in time until it has arrived"

var kubeVirtTable = merge(installationTable, configurationTable)

var installationTable = table{
	"imageTag":                idle("Drydock is installed by its manifests, which name the images"),
	"imageRegistry":           idle("Drydock is installed by its manifests, which name the images"),
	"imagePullPolicy":         noted("of Drydock's components; and of launcher pods, where configuration.imagePullPolicy is not set"),
	"imagePullSecrets":        noted("of Drydock's components, in their namespace; not of launcher pods, which are in users' namespaces"),
	"monitorNamespace":        noted("where Prometheus is; if not set, `openshift-monitoring` or `monitoring`, if monitorAccount exists there: [metrics.md](metrics.md#prometheuss-operator)"),
	"serviceMonitorNamespace": noted("where the ServiceMonitor is made; monitorNamespace if not set"),
	"monitorAccount":          noted("the service account of Prometheus; `prometheus-k8s` if not set"),
	"workloadUpdateStrategy.workloadUpdateMethods":            noted("LiveMigrate, Evict"),
	"workloadUpdateStrategy.batchEvictionSize":                noted("10 if not set"),
	"workloadUpdateStrategy.batchEvictionInterval":            noted("1m if not set"),
	"uninstallStrategy":                                       only("BlockUninstallIfWorkloadsExist").idleFor("RemoveWorkloads").because("with the first, the object can't be deleted while there are VMs, VMIs or replica sets; nothing removes workloads"),
	"certificateRotateStrategy.selfSigned.ca.duration":        noted("of the authorities; 10 years if not set, at least 40m"),
	"certificateRotateStrategy.selfSigned.ca.renewBefore":     noted("a fifth of the duration if not set, at most 90 days; at least 20m, at most four fifths"),
	"certificateRotateStrategy.selfSigned.server.duration":    noted("of the components' certificates; a year if not set, and not more than half of `ca.duration`; at least 40m"),
	"certificateRotateStrategy.selfSigned.server.renewBefore": noted("a fifth of the duration if not set, at most 90 days; at least 20m"),
	"certificateRotateStrategy.selfSigned.caRotateInterval":   noted("the older form of `ca.duration`; not with `ca` or `server`"),
	"certificateRotateStrategy.selfSigned.caOverlapInterval":  noted("the older form of `ca.renewBefore`; not with `ca` or `server`"),
	"certificateRotateStrategy.selfSigned.certRotateInterval": noted("the older form of `server.duration`; not with `ca` or `server`"),
	"productVersion":                           idle(unserved),
	"productName":                              idle(unserved),
	"productComponent":                         idle(unserved),
	"synchronizationPort":                      idle("guests migrate within their cluster"),
	"infra.replicas":                           noted("of virt-api and of virt-controller; at least 1"),
	"infra.nodePlacement.nodeSelector":         noted("of virt-api and virt-controller, beside what their manifests say"),
	"infra.nodePlacement.affinity":             noted("of virt-api and virt-controller, beside what their manifests say"),
	"infra.nodePlacement.tolerations":          noted("of virt-api and virt-controller, beside what their manifests say"),
	"workloads.replicas":                       idle("virt-handler runs once on each node"),
	"workloads.nodePlacement.nodeSelector":     noted("of virt-handler, beside what its manifest says"),
	"workloads.nodePlacement.affinity":         noted("of virt-handler, beside what its manifest says"),
	"workloads.nodePlacement.tolerations":      noted("of virt-handler, beside what its manifest says"),
	"customizeComponents.patches.resourceName": noted("virt-api, virt-controller and virt-handler"),
	"customizeComponents.patches.resourceType": noted("Deployment, and DaemonSet of virt-handler"),
	"customizeComponents.patches.patch":        noted("what pods need and where they run; nothing that gives rights: [configuration.md](configuration.md#patches-and-flags)"),
	"customizeComponents.patches.type":         only("json", "merge", "strategic"),
	"customizeComponents.flags.api":            noted(flagsNote),
	"customizeComponents.flags.controller":     noted(flagsNote),
	"customizeComponents.flags.handler":        noted(flagsNote),
}

const flagsNote = "beside the flags of the manifest; those in [configuration.md](configuration.md#patches-and-flags)"

const unserved = "Drydock has no counterpart of it"

const logLevel = "0 if not set; above 7 it is 7"

var configurationTable = table{
	"configuration.cpuModel":         yes(),
	"configuration.cpuRequest":       noted("of guests that ask for no CPU"),
	"configuration.emulatedMachines": noted("older; those of architectureConfiguration.amd64 count first"),
	"configuration.imagePullPolicy":  noted("of launcher pods"),
	"configuration.machineType":      noted("older; architectureConfiguration.amd64.machineType counts first"),

	"configuration.developerConfiguration.featureGates":                               noted("HostDisk allows hostDisk, DownwardMetrics allows downwardMetrics; the others are accepted and without effect: what Drydock implements is there, and the use of what it doesn't is refused"),
	"configuration.developerConfiguration.disabledFeatureGates":                       noted("without effect, as most of featureGates"),
	"configuration.developerConfiguration.pvcTolerateLessSpaceUpToPercent":            noted("10 if not set; of a disk that is made in a claim, beside the file system's own share"),
	"configuration.developerConfiguration.minimumReservePVCBytes":                     idle(unserved),
	"configuration.developerConfiguration.memoryOvercommit":                           noted("of guests that don't say how much memory their pods ask for"),
	"configuration.developerConfiguration.nodeSelectors":                              noted("labels that each node of a guest must have"),
	"configuration.developerConfiguration.useEmulation":                               yes(),
	"configuration.developerConfiguration.cpuAllocationRatio":                         yes(),
	"configuration.developerConfiguration.minimumClusterTSCFrequency":                 idle("guests need no node of a TSC frequency"),
	"configuration.developerConfiguration.diskVerification":                           idle("images are read without a program that needs a memory limit"),
	"configuration.developerConfiguration.logVerbosity.virtAPI":                       noted(logLevel),
	"configuration.developerConfiguration.logVerbosity.virtController":                noted(logLevel),
	"configuration.developerConfiguration.logVerbosity.virtHandler":                   noted(logLevel),
	"configuration.developerConfiguration.logVerbosity.nodeVerbosity":                 noted("of virt-handler on the node, instead of virtHandler"),
	"configuration.developerConfiguration.logVerbosity.virtLauncher":                  idle("virt-launcher logs at one level; what it finds out, virt-handler logs"),
	"configuration.developerConfiguration.logVerbosity.virtOperator":                  idle("there is no virt-operator"),
	"configuration.developerConfiguration.logVerbosity.virtSynchronizationController": idle("guests migrate within their cluster"),
	"configuration.developerConfiguration.clusterProfiler":                            idle("the flag --pprof-addr of virt-controller serves profiles"),

	"configuration.network.defaultNetworkInterface":           only("masquerade", "bridge"),
	"configuration.network.permitSlirpInterface":              only("false").idleFor("true").because("slirp is refused; use masquerade"),
	"configuration.network.permitBridgeInterfaceOnPodNetwork": noted("false refuses bridge on the pods' network"),
	"configuration.network.binding":                           noted("domainAttachmentType tap and managedTap, with networkAttachmentDefinition, migration without a method, and memory requests in computeResourceOverhead; no sidecarImage, no downwardAPI"),

	"configuration.architectureConfiguration.amd64.ovmfPath":         idle("the firmware is in virt-launcher's image"),
	"configuration.architectureConfiguration.amd64.emulatedMachines": noted("patterns of the machine types that VMs may name; all unless set"),
	"configuration.architectureConfiguration.amd64.machineType":      yes(),
	"configuration.architectureConfiguration.arm64":                  idle("guests are of amd64"),
	"configuration.architectureConfiguration.ppc64le":                idle("guests are of amd64"),
	"configuration.architectureConfiguration.s390x":                  idle("guests are of amd64"),
	"configuration.architectureConfiguration.defaultArchitecture":    only("amd64"),

	"configuration.migrations.nodeDrainTaintKey":                 idle("no taint makes guests migrate").withOnly(clusterconfig.NodeDrainTaintKey),
	"configuration.migrations.parallelOutboundMigrationsPerNode": yes(),
	"configuration.migrations.parallelMigrationsPerCluster":      yes(),
	"configuration.migrations.allowAutoConverge":                 yes(),
	"configuration.migrations.bandwidthPerMigration":             noted("bytes in a second; 0 for no limit"),
	"configuration.migrations.completionTimeoutPerGiB":           noted("seconds; 0 for no limit"),
	"configuration.migrations.progressTimeout":                   noted("seconds; 0 for no limit"),
	"configuration.migrations.maxDowntimeMs":                     noted(downtime),
	"configuration.migrations.utilityVolumesTimeout":             idle("there are no utility volumes"),
	"configuration.migrations.unsafeMigrationOverride":           off().because("a disk that can't be shared is copied; nothing lets a guest migrate without its data"),
	"configuration.migrations.allowPostCopy":                     noted(postCopy),
	"configuration.migrations.allowWorkloadDisruption":           noted(disruption),
	"configuration.migrations.disableTLS":                        only("false").idleFor("true").because("what is sent from node to node is always encrypted"),
	"configuration.migrations.network":                           noted("of virt-handlers that have the interface migration0"),
	"configuration.migrations.matchSELinuxLevelOnMigration":      noted("it always is"),

	"configuration.persistentReservationConfiguration.enabled":                                             only("false").idleFor("true").because("disks.lun.reservation is refused"),
	"configuration.confidentialCompute":                                                                    idle("domain.launchSecurity is refused"),
	"configuration.ovmfPath":                                                                               idle("the firmware is in virt-launcher's image"),
	"configuration.selinuxLauncherType":                                                                    noted("SELinux type of launcher and attachment pods; without it the container runtime chooses"),
	"configuration.defaultRuntimeClass":                                                                    noted("of launcher pods, from the next one on"),
	"configuration.smbios.manufacturer":                                                                    yes(),
	"configuration.smbios.product":                                                                         yes(),
	"configuration.smbios.version":                                                                         yes(),
	"configuration.smbios.sku":                                                                             yes(),
	"configuration.smbios.family":                                                                          yes(),
	"configuration.evictionStrategy":                                                                       only("None", "LiveMigrate", "LiveMigrateIfPossible", "External"),
	"configuration.additionalGuestMemoryOverheadRatio":                                                     yes(),
	"configuration.supportContainerResources":                                                              idle(unserved),
	"configuration.supportedGuestAgentVersions":                                                            idle("older; every version of the agent is asked for what it can do"),
	"configuration.memBalloonStatsPeriod":                                                                  idle("guests are not asked for statistics of their memory"),
	"configuration.permittedHostDevices.pciHostDevices.pciVendorSelector":                                  noted("vendor and device, such as `10de:1eb8`; those that are bound to `vfio-pci` are [offered](devices.md#devices-of-the-node)"),
	"configuration.permittedHostDevices.pciHostDevices.resourceName":                                       noted("the `deviceName` of `gpus` and `hostDevices`"),
	"configuration.permittedHostDevices.pciHostDevices.externalResourceProvider":                           noted("another device plugin offers the devices"),
	"configuration.permittedHostDevices.mediatedDevices":                                                   idle("no mediated device gets to a guest; pass whole GPUs or their virtual functions, by pciHostDevices"),
	"configuration.permittedHostDevices.usb":                                                               idle("no USB device of a node gets to a guest; pass the controller, by pciHostDevices"),
	"configuration.mediatedDevicesConfiguration":                                                           idle("no mediated devices are made"),
	"configuration.minCPUModel":                                                                            idle("older; name a CPU model in the VM"),
	"configuration.obsoleteCPUModels":                                                                      idle("a node is labeled with each CPU model that it can give; name one in the VM"),
	"configuration.virtualMachineInstancesPerNode":                                                         idle(unserved),
	"configuration.apiConfiguration.restClient.rateLimiter.tokenBucketRateLimiter.qps":                     noted("of virt-api but for its webhooks; no limit if not set"),
	"configuration.apiConfiguration.restClient.rateLimiter.tokenBucketRateLimiter.burst":                   noted("of virt-api but for its webhooks; qps if not set"),
	"configuration.webhookConfiguration.restClient.rateLimiter.tokenBucketRateLimiter.qps":                 noted("of virt-api's webhooks; no limit if not set"),
	"configuration.webhookConfiguration.restClient.rateLimiter.tokenBucketRateLimiter.burst":               noted("of virt-api's webhooks; qps if not set"),
	"configuration.controllerConfiguration.restClient.rateLimiter.tokenBucketRateLimiter.qps":              noted("of virt-controller, but for its lease; no limit if not set"),
	"configuration.controllerConfiguration.restClient.rateLimiter.tokenBucketRateLimiter.burst":            noted("of virt-controller, but for its lease; qps if not set"),
	"configuration.handlerConfiguration.restClient.rateLimiter.tokenBucketRateLimiter.qps":                 noted("of each virt-handler; no limit if not set"),
	"configuration.handlerConfiguration.restClient.rateLimiter.tokenBucketRateLimiter.burst":               noted("of each virt-handler; qps if not set"),
	"configuration.tlsConfiguration.minTLSVersion":                                                         noted("of virt-api and the upload proxy; never before 1.2"),
	"configuration.tlsConfiguration.ciphers":                                                               noted("of virt-api and the upload proxy, for TLS 1.2"),
	"configuration.seccompConfiguration.virtualMachineInstanceProfile.customProfile.runtimeDefaultProfile": only("true").because("launcher pods always have it"),
	"configuration.seccompConfiguration.virtualMachineInstanceProfile.customProfile.localhostProfile":      no("launcher pods have the runtime's default profile; leave it out"),
	"configuration.vmStateStorageClass":                                                                    yes(),
	"configuration.virtualMachineOptions.disableSerialConsoleLog":                                          noted("a console is logged only if its VM asks for it"),
	"configuration.virtualMachineOptions.disableFreePageReporting":                                         idle("guests give back the pages that they don't use"),
	"configuration.ksmConfiguration":                                                                       idle("virt-handler leaves a node's KSM as it is"),
	"configuration.autoCPULimitNamespaceLabelSelector":                                                     idle(unserved),
	"configuration.liveUpdateConfiguration.maxHotplugRatio":                                                noted("4 if not set"),
	"configuration.liveUpdateConfiguration.maxCpuSockets":                                                  noted("of guests of VMs that name no `maxSockets`"),
	"configuration.liveUpdateConfiguration.maxGuest":                                                       noted("of guests of 1Gi or more, of VMs that name no `maxGuest`"),
	"configuration.vmRolloutStrategy":                                                                      noted("which changes of a template reach a guest that runs; the others wait for its restart"),
	"configuration.commonInstancetypesDeployment.enabled":                                                  noted("whether the cluster has the common instance types and preferences; it does if not set"),
	"configuration.virtTemplateDeployment":                                                                 idle("it belongs to another project"),
	"configuration.instancetype.referencePolicy":                                                           only("reference", "expand", "expandAll"),
	"configuration.hypervisors":                                                                            idle("guests run with KVM, or emulated"),
	"configuration.changedBlockTrackingLabelSelectors":                                                     idle("there are no backups by changed blocks; snapshots are whole"),
	"configuration.roleAggregationStrategy":                                                                only("AggregateToDefault", "Manual").because("with Manual the roles admin, edit and view of Kubernetes say nothing of VMs; bind users to kubevirt.io:admin, :edit or :view"),
}
