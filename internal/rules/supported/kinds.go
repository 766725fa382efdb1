package supported

// vmTable is about VirtualMachineSpec; what is below template.spec is judged
// by vmiTable, and what is below dataVolumeTemplates.spec by dataVolumeTable.
var vmTable = table{
	"running":                        noted("the older form of runStrategy; not both"),
	"runStrategy":                    only("Always", "RerunOnFailure", "Once", "Manual", "Halted"),
	"instancetype":                   no(),
	"preference":                     no(),
	"template.metadata":              noted("labels and annotations"),
	"template.spec":                  noted("as the spec of a VirtualMachineInstance"),
	"dataVolumeTemplates.kind":       noted("without effect"),
	"dataVolumeTemplates.apiVersion": noted("without effect"),
	"dataVolumeTemplates.metadata":   noted("name, labels and annotations"),
	"dataVolumeTemplates.spec":       noted("as the spec of a DataVolume"),
	"dataVolumeTemplates.status":     noted("without effect"),
	"updateVolumesStrategy":          no(),
}

var replicaSetTable = table{
	"replicas":          yes(),
	"selector":          yes(),
	"template.metadata": noted("labels and annotations"),
	"template.spec":     noted("as the spec of a VirtualMachineInstance"),
	"paused":            yes(),
}

var migrationTable = table{
	"vmiName":           instead("live migration is not served yet, and no such object can be created"),
	"addedNodeSelector": no(),
	"sendTo":            no(),
	"receive":           no(),
	"priority":          no(),
}

var kubeVirtTable = merge(installationTable, configurationTable)

var installationTable = table{
	"imageTag":                  instead("Drydock is installed by its manifests, which name the images"),
	"imageRegistry":             instead("Drydock is installed by its manifests, which name the images"),
	"imagePullPolicy":           noted("of launcher pods"),
	"imagePullSecrets":          no(),
	"monitorNamespace":          no(),
	"serviceMonitorNamespace":   no(),
	"monitorAccount":            no(),
	"workloadUpdateStrategy":    noEmpty(),
	"uninstallStrategy":         no(),
	"certificateRotateStrategy": noEmpty(),
	"productVersion":            no(),
	"productName":               no(),
	"productComponent":          no(),
	"synchronizationPort":       no(),
	"infra":                     no(),
	"workloads":                 no(),
	"customizeComponents":       noEmpty(),
}

// noEmpty is a struct that manifests of KubeVirt often set to {}, which says
// nothing.
func noEmpty() entry { return instead("may be empty") }

var configurationTable = table{
	"configuration.cpuModel":         yes(),
	"configuration.cpuRequest":       no(),
	"configuration.emulatedMachines": no(),
	"configuration.imagePullPolicy":  noted("of launcher pods"),
	"configuration.migrations":       no(),
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
	"configuration.network.binding":                           no(),

	"configuration.architectureConfiguration.amd64.ovmfPath":         no(),
	"configuration.architectureConfiguration.amd64.emulatedMachines": no(),
	"configuration.architectureConfiguration.amd64.machineType":      yes(),
	"configuration.architectureConfiguration.arm64":                  no(),
	"configuration.architectureConfiguration.ppc64le":                no(),
	"configuration.architectureConfiguration.s390x":                  no(),
	"configuration.architectureConfiguration.defaultArchitecture":    only("amd64"),

	"configuration.ovmfPath":                           no(),
	"configuration.selinuxLauncherType":                noted("SELinux type of launcher and attachment pods; without it the container runtime chooses"),
	"configuration.defaultRuntimeClass":                no(),
	"configuration.smbios.manufacturer":                yes(),
	"configuration.smbios.product":                     yes(),
	"configuration.smbios.version":                     yes(),
	"configuration.smbios.sku":                         yes(),
	"configuration.smbios.family":                      yes(),
	"configuration.evictionStrategy":                   only("None", "LiveMigrateIfPossible"),
	"configuration.additionalGuestMemoryOverheadRatio": yes(),
	"configuration.supportContainerResources":          no(),
	"configuration.supportedGuestAgentVersions":        no(),
	"configuration.memBalloonStatsPeriod":              no(),
	"configuration.permittedHostDevices":               no(),
	"configuration.mediatedDevicesConfiguration":       no(),
	"configuration.minCPUModel":                        no(),
	"configuration.obsoleteCPUModels":                  no(),
	"configuration.virtualMachineInstancesPerNode":     no(),
	"configuration.apiConfiguration":                   no(),
	"configuration.webhookConfiguration":               no(),
	"configuration.controllerConfiguration":            no(),
	"configuration.handlerConfiguration":               no(),
	"configuration.tlsConfiguration":                   no(),
	"configuration.seccompConfiguration":               no(),
	"configuration.vmStateStorageClass":                no(),
	"configuration.virtualMachineOptions":              no(),
	"configuration.ksmConfiguration":                   no(),
	"configuration.autoCPULimitNamespaceLabelSelector": no(),
	"configuration.liveUpdateConfiguration":            no(),
	"configuration.vmRolloutStrategy":                  noted("what can't be changed in a running guest waits for its restart"),
	"configuration.commonInstancetypesDeployment":      no(),
	"configuration.virtTemplateDeployment":             no(),
	"configuration.instancetype":                       no(),
	"configuration.hypervisors":                        no(),
	"configuration.changedBlockTrackingLabelSelectors": no(),
	"configuration.roleAggregationStrategy":            only("AggregateToDefault"),
}
