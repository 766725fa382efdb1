package supported

import "drydock.dev/drydock/internal/rules/clusterconfig"

// vmTable is about VirtualMachineSpec; what is below template.spec is judged
// by vmiTable, and what is below dataVolumeTemplates.spec by dataVolumeTable.
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
	"template.metadata":                         noted("labels and annotations; a name has no effect"),
	"template.spec":                             noted("as the spec of a VirtualMachineInstance"),
	"dataVolumeTemplates.kind":                  noted("without effect"),
	"dataVolumeTemplates.apiVersion":            noted("without effect"),
	"dataVolumeTemplates.metadata":              noted("name, labels and annotations"),
	"dataVolumeTemplates.spec":                  noted("as the spec of a DataVolume"),
	"dataVolumeTemplates.status":                noted("without effect"),
	"updateVolumesStrategy": only("Replacement", "Migration").because("Migration copies the disks to the other claims while the guest runs; " +
		"Replacement, which is the default, has the VM use them after a restart"),
}

// inferred is what it is inferred from.
const inferred = "from the labels of the volume's claim or DataVolume, or of what that is made from"

var replicaSetTable = table{
	"replicas":          yes(),
	"selector":          yes(),
	"template.metadata": noted("labels and annotations; a name has no effect"),
	"template.spec":     noted("as the spec of a VirtualMachineInstance"),
	"paused":            yes(),
}

var migrationTable = table{
	"vmiName":           yes(),
	"addedNodeSelector": noted("restricts where the guest goes to; of a label that the VMI selects itself, the VMI's value counts"),
	"sendTo":            no(),
	"receive":           no(),
	"priority":          only("system-critical", "user-triggered", "system-maintenance").because("users' migrations are `user-triggered`"),
}

var migrationPolicyTable = table{
	"selectors.namespaceSelector":              noted("labels, all of which the namespace has"),
	"selectors.virtualMachineInstanceSelector": noted("labels, all of which the VMI has"),
	"allowAutoConverge":                        yes(),
	"bandwidthPerMigration":                    noted("bytes in a second; 0 for no limit"),
	"completionTimeoutPerGiB":                  noted("seconds; 0 for no limit"),
	"maxDowntimeMs":                            noted(downtime),
	"experimental":                             no(),
	"allowPostCopy":                            noted(postCopy),
	"allowWorkloadDisruption":                  noted(disruption),
}

// snapshotTable and restoreTable have no check: each field is supported, and values are judged by the
// policies in config/rbac/snapshot-policy.yaml.
var snapshotTable = table{
	"source":          noted("a VirtualMachine that is stopped"),
	"deletionPolicy":  only("Delete", "Retain"),
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

// cloneTable has no check either: values are judged by the policy in config/rbac/clone-policy.yaml.
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

// postCopy is what the field means as long as guests are migrated by pre-copy only.
const postCopy = "where QEMU at the target has userfaultfd, else the guest is stopped; it allows allowWorkloadDisruption where that is not set"

const downtime = "100 if not set"

const disruption = "stops a guest whose migration is not done in time until it has arrived"

var kubeVirtTable = merge(installationTable, configurationTable)

var installationTable = table{
	"imageTag":                instead("Drydock is installed by its manifests, which name the images"),
	"imageRegistry":           instead("Drydock is installed by its manifests, which name the images"),
	"imagePullPolicy":         noted("of launcher pods"),
	"imagePullSecrets":        no(),
	"monitorNamespace":        no(),
	"serviceMonitorNamespace": no(),
	"monitorAccount":          no(),
	"workloadUpdateStrategy.workloadUpdateMethods": noted("LiveMigrate, Evict"),
	"workloadUpdateStrategy.batchEvictionSize":     noted("10 if not set"),
	"workloadUpdateStrategy.batchEvictionInterval": noted("1m if not set"),
	"uninstallStrategy":                            no(),
	"certificateRotateStrategy":                    noEmpty(),
	"productVersion":                               no(),
	"productName":                                  no(),
	"productComponent":                             no(),
	"synchronizationPort":                          no(),
	"infra":                                        no(),
	"workloads":                                    no(),
	"customizeComponents":                          noEmpty(),
}

// noEmpty is a struct that manifests of KubeVirt often set to {}, which says
// nothing.
func noEmpty() entry { return instead("may be empty") }

var configurationTable = table{
	"configuration.cpuModel":         yes(),
	"configuration.cpuRequest":       no(),
	"configuration.emulatedMachines": no(),
	"configuration.imagePullPolicy":  noted("of launcher pods"),
	"configuration.machineType":      instead("use architectureConfiguration.amd64.machineType"),

	"configuration.developerConfiguration.featureGates":                    noted("HostDisk allows hostDisk; the others are accepted and without effect: what Drydock implements is there, and the use of what it doesn't is refused"),
	"configuration.developerConfiguration.disabledFeatureGates":            no(),
	"configuration.developerConfiguration.pvcTolerateLessSpaceUpToPercent": no(),
	"configuration.developerConfiguration.minimumReservePVCBytes":          no(),
	"configuration.developerConfiguration.memoryOvercommit":                no(),
	"configuration.developerConfiguration.nodeSelectors":                   no(),
	"configuration.developerConfiguration.useEmulation":                    yes(),
	"configuration.developerConfiguration.cpuAllocationRatio":              yes(),
	"configuration.developerConfiguration.minimumClusterTSCFrequency":      no(),
	"configuration.developerConfiguration.diskVerification":                no(),
	"configuration.developerConfiguration.logVerbosity":                    no(),
	"configuration.developerConfiguration.clusterProfiler":                 no(),

	"configuration.network.defaultNetworkInterface":           only("masquerade", "bridge"),
	"configuration.network.permitSlirpInterface":              off(),
	"configuration.network.permitBridgeInterfaceOnPodNetwork": only("true"),
	"configuration.network.binding":                           noted("domainAttachmentType tap and managedTap, with networkAttachmentDefinition, migration without a method, and memory requests in computeResourceOverhead; no sidecarImage, no downwardAPI"),

	"configuration.architectureConfiguration.amd64.ovmfPath":         no(),
	"configuration.architectureConfiguration.amd64.emulatedMachines": no(),
	"configuration.architectureConfiguration.amd64.machineType":      yes(),
	"configuration.architectureConfiguration.arm64":                  no(),
	"configuration.architectureConfiguration.ppc64le":                no(),
	"configuration.architectureConfiguration.s390x":                  no(),
	"configuration.architectureConfiguration.defaultArchitecture":    only("amd64"),

	"configuration.migrations.nodeDrainTaintKey":                 only(clusterconfig.NodeDrainTaintKey).because("without effect: no taint makes guests migrate"),
	"configuration.migrations.parallelOutboundMigrationsPerNode": yes(),
	"configuration.migrations.parallelMigrationsPerCluster":      yes(),
	"configuration.migrations.allowAutoConverge":                 yes(),
	"configuration.migrations.bandwidthPerMigration":             noted("bytes in a second; 0 for no limit"),
	"configuration.migrations.completionTimeoutPerGiB":           noted("seconds; 0 for no limit"),
	"configuration.migrations.progressTimeout":                   noted("seconds; 0 for no limit"),
	"configuration.migrations.maxDowntimeMs":                     noted(downtime),
	"configuration.migrations.utilityVolumesTimeout":             noted("without effect: there are no utility volumes"),
	"configuration.migrations.unsafeMigrationOverride":           off(),
	"configuration.migrations.allowPostCopy":                     noted(postCopy),
	"configuration.migrations.allowWorkloadDisruption":           noted(disruption),
	"configuration.migrations.disableTLS":                        off().because("what is sent from node to node is always encrypted"),
	"configuration.migrations.network":                           noted("of virt-handlers that have the interface migration0"),
	"configuration.migrations.matchSELinuxLevelOnMigration":      off(),

	"configuration.persistentReservationConfiguration.enabled": off(),
	"configuration.confidentialCompute":                        no(),
	"configuration.ovmfPath":                                   no(),
	"configuration.selinuxLauncherType":                        noted("SELinux type of launcher and attachment pods; without it the container runtime chooses"),
	"configuration.defaultRuntimeClass":                        no(),
	"configuration.smbios.manufacturer":                        yes(),
	"configuration.smbios.product":                             yes(),
	"configuration.smbios.version":                             yes(),
	"configuration.smbios.sku":                                 yes(),
	"configuration.smbios.family":                              yes(),
	"configuration.evictionStrategy":                           only("None", "LiveMigrate", "LiveMigrateIfPossible", "External"),
	"configuration.additionalGuestMemoryOverheadRatio":         yes(),
	"configuration.supportContainerResources":                  no(),
	"configuration.supportedGuestAgentVersions":                no(),
	"configuration.memBalloonStatsPeriod":                      no(),
	"configuration.permittedHostDevices":                       no(),
	"configuration.mediatedDevicesConfiguration":               no(),
	"configuration.minCPUModel":                                no(),
	"configuration.obsoleteCPUModels":                          no(),
	"configuration.virtualMachineInstancesPerNode":             no(),
	"configuration.apiConfiguration":                           no(),
	"configuration.webhookConfiguration":                       no(),
	"configuration.controllerConfiguration":                    no(),
	"configuration.handlerConfiguration":                       no(),
	"configuration.tlsConfiguration":                           no(),
	"configuration.seccompConfiguration":                       no(),
	"configuration.vmStateStorageClass":                        yes(),
	"configuration.virtualMachineOptions":                      no(),
	"configuration.ksmConfiguration":                           no(),
	"configuration.autoCPULimitNamespaceLabelSelector":         no(),
	"configuration.liveUpdateConfiguration.maxHotplugRatio":    noted("4 if not set"),
	"configuration.liveUpdateConfiguration.maxCpuSockets":      noted("of guests of VMs that name no `maxSockets`"),
	"configuration.liveUpdateConfiguration.maxGuest":           noted("of guests of 1Gi or more, of VMs that name no `maxGuest`"),
	"configuration.vmRolloutStrategy":                          noted("which changes of a template reach a guest that runs; the others wait for its restart"),
	"configuration.commonInstancetypesDeployment":              no(),
	"configuration.virtTemplateDeployment":                     no(),
	"configuration.instancetype.referencePolicy":               only("reference", "expand", "expandAll"),
	"configuration.hypervisors":                                no(),
	"configuration.changedBlockTrackingLabelSelectors":         no(),
	"configuration.roleAggregationStrategy":                    only("AggregateToDefault"),
}
