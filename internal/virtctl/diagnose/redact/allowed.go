package redact

import (
	"sync"

	"drydock.dev/drydock/internal/contracts/layout"
)

// annotations are allowed by their whole names: one of the same domain may repeat a spec.
const annotations = `
	kubevirt.io/latest-observed-api-version kubevirt.io/storage-observed-api-version kubevirt.io/vm-generation
	kubevirt.io/install-strategy-version kubevirt.io/ephemeral-provisioning kubevirt.io/ephemeral-hotplug-volumes
	kubevirt.io/allow-pod-bridge-network-live-migration kubevirt.io/immediate-data-volume-creation
	kubevirt.io/migrationTransportUnix kubevirt.io/domain kubevirt.io/memfd kubevirt.io/drain kubevirt.io/heartbeat
	drydock.dev/attachment-pods drydock.dev/removed-volumes drydock.dev/forced-volumes drydock.dev/made-for-vm
	drydock.dev/replaced-by-kubevirt-object drydock.dev/evacuation-of-cordoned-node drydock.dev/datavolume
	drydock.dev/drain-local-disks drydock.dev/drain-destination drydock.dev/provisioning-only drydock.dev/restarts-before
	drydock.dev/restore-uid drydock.dev/volume-snapshot-uid drydock.dev/volume-snapshot-class
	drydock.dev/volume-group-snapshot-class drydock.dev/content drydock.dev/awaits-state-of
	k8s.v1.cni.cncf.io/network-status:text
	volume.kubernetes.io/selected-node volume.kubernetes.io/storage-provisioner volume.beta.kubernetes.io/storage-provisioner
	volume.kubernetes.io/storage-resizer pv.kubernetes.io/bind-completed pv.kubernetes.io/bound-by-controller
	pv.kubernetes.io/provisioned-by storageclass.kubernetes.io/is-default-class storageclass.kubevirt.io/is-default-virt-class
	snapshot.storage.kubernetes.io/is-default-class deployment.kubernetes.io/revision deprecated.daemonset.template.generation
	node.alpha.kubernetes.io/ttl volumes.kubernetes.io/controller-managed-attach-detach
	cdi.kubevirt.io/storage.preallocation cdi.kubevirt.io/storage.populatedFor cdi.kubevirt.io/storage.condition.running
	cdi.kubevirt.io/storage.pod.restarts
	cdi.kubevirt.io/storage.usePopulator cdi.kubevirt.io/createdForDataVolume
	` + layout.MaintenanceUIDAnnotation + " " + layout.MaintenanceSinceAnnotation + " " + layout.MaintenanceOpenAnnotation + " " +
	layout.MaintenanceReleaseAnnotation + " " + layout.AnnImmediate + " " + layout.AnnContentType + " " + layout.AnnUploadTarget + " " +
	layout.AnnPodPhase + " " + layout.AnnPodReady + " " + layout.AnnRunningReason + " " + layout.AnnRunningMessage + ":text " + layout.AnnOverwrite

const (
	metadata = `name namespace generateName uid resourceVersion generation creationTimestamp deletionTimestamp
		deletionGracePeriodSeconds finalizers ownerReferences{apiVersion kind name uid controller blockOwnerDeletion}
		labels:labels annotations:annotations`
	condition = `type status lastProbeTime lastTransitionTime lastHeartbeatTime lastUpdateTime observedGeneration reason message:text`
	selector  = `matchLabels:labels matchExpressions:expression`
	podTerm   = `labelSelector:selector namespaceSelector:selector namespaces topologyKey`
	nodeTerm  = `matchExpressions:expression matchFields:expression`
	affinity  = `nodeAffinity{
			requiredDuringSchedulingIgnoredDuringExecution{nodeSelectorTerms:nodeTerm}
			preferredDuringSchedulingIgnoredDuringExecution{weight preference:nodeTerm}}
		podAffinity:podAffinity podAntiAffinity:podAffinity`
	podAffinity = `requiredDuringSchedulingIgnoredDuringExecution:podTerm
		preferredDuringSchedulingIgnoredDuringExecution{weight podAffinityTerm:podTerm}`
	toleration = `key operator effect tolerationSeconds`
	spread     = `maxSkew topologyKey whenUnsatisfiable labelSelector:selector minDomains nodeAffinityPolicy nodeTaintsPolicy`
	resources  = `requests:quantities limits:quantities`
	typedRef   = `apiVersion apiGroup kind name namespace uid`
)

const (
	container = `name image imagePullPolicy resources:resources ports{name containerPort protocol} terminationMessagePolicy
		volumeMounts{name mountPath readOnly subPath mountPropagation} volumeDevices{name devicePath}
		securityContext{privileged runAsUser runAsGroup runAsNonRoot allowPrivilegeEscalation readOnlyRootFilesystem
			capabilities{add drop} seccompProfile{type localhostProfile} seLinuxOptions{type level}}`
	containerState  = `waiting{reason message:text} running{startedAt} terminated{exitCode signal reason message:text startedAt finishedAt}`
	containerStatus = `name ready started restartCount image imageID allocatedResources:quantities resources:resources
		state:containerState lastState:containerState`
	podSpec = `nodeName schedulerName priority priorityClassName preemptionPolicy restartPolicy serviceAccountName
		automountServiceAccountToken hostNetwork hostPID terminationGracePeriodSeconds activeDeadlineSeconds runtimeClassName
		nodeSelector:labels affinity:affinity tolerations:toleration topologySpreadConstraints:spread hostname subdomain dnsPolicy
		schedulingGates{name} readinessGates{conditionType} containers:container initContainers:container
		securityContext{runAsUser runAsGroup runAsNonRoot fsGroup fsGroupChangePolicy seccompProfile{type localhostProfile} seLinuxOptions{type level}}
		volumes{name persistentVolumeClaim{claimName readOnly} emptyDir{medium sizeLimit:quantity} hostPath{path type}
			image{reference pullPolicy} configMap{name optional} secret{secretName optional} csi{driver readOnly}}`
	podStatus = `phase reason message:text hostIP hostIPs{ip} podIP podIPs{ip} startTime nominatedNodeName qosClass resize
		conditions:condition containerStatuses:containerStatus initContainerStatuses:containerStatus`
	workloadStatus = `observedGeneration replicas updatedReplicas readyReplicas availableReplicas unavailableReplicas collisionCount
		currentNumberScheduled numberMisscheduled desiredNumberScheduled numberReady updatedNumberScheduled numberAvailable numberUnavailable
		conditions:condition`
)

const (
	bootOrderAndSize = `custom{logical physical discardGranularity} matchVolume{enabled}`
	disk             = `name bootOrder dedicatedIOThread cache io shareable errorPolicy changedBlockTracking blockSize:blockSize
		disk{bus readonly pciAddress} lun{bus readonly reservation} cdrom{bus readonly tray}`
	hyperv = `relaxed{enabled} vapic{enabled} spinlocks{enabled spinlocks} vpindex{enabled} runtime{enabled} synic{enabled}
		synictimer{enabled direct{enabled}} reset{enabled} vendorid{enabled} frequencies{enabled} reenlightenment{enabled}
		tlbflush{enabled direct{enabled} extended{enabled}} ipi{enabled} evmcs{enabled}`
	clock = `utc{offsetSeconds} timezone`
	timer = `hpet{tickPolicy present} kvm{present} pit{tickPolicy present} rtc{tickPolicy present track} hyperv{present}`
	gpu   = `name deviceName claimName requestName`
	nic   = `name model bridge slirp masquerade sriov macvtap passt passtBinding binding{name} ports{name protocol port}
		portRanges{protocol start end} macAddress bootOrder pciAddress acpiIndex state`
	devices = `useVirtioTransitional disableHotplug disks:disk interfaces:nic watchdog{name i6300esb{action} diag288{action}}
		inputs{bus type name} autoattachPodInterface autoattachGraphicsDevice autoattachSerialConsole logSerialConsole autoattachMemBalloon
		autoattachInputDevice autoattachVSOCK rng blockMultiQueue networkInterfaceMultiqueue gpus:gpu hostDevices:gpu downwardMetrics
		panicDevices{model} filesystems{name virtiofs} clientPassthrough sound{name model} tpm{enabled persistent} video{type}`
	domain = `resources{requests:quantities limits:quantities overcommitGuestOverhead}
		cpu{cores sockets maxSockets threads model features{name policy} dedicatedCpuPlacement numa{guestMappingPassthrough} isolateEmulatorThread realtime{mask}}
		memory{hugepages{pageSize} guest:quantity maxGuest:quantity reservedOverhead{addedOverhead:quantity memLock}}
		machine{type} firmware{uuid bootloader{bios{useSerial} efi{secureBoot persistent}} kernelBoot{container{image imagePullPolicy kernelPath initrdPath}}}
		clock{utc{offsetSeconds} timezone timer:timer}
		features{acpi{enabled} apic{enabled endOfInterrupt} hypervPassthrough{enabled} hyperv:hyperv smm{enabled} kvm{hidden} pvspinlock{enabled}}
		devices:devices ioThreadsPolicy ioThreads{supplementalPoolThreadCount} rebootPolicy`
	plugged = `persistentVolumeClaim{claimName readOnly hotpluggable} dataVolume{name hotpluggable}`
	volume  = `name persistentVolumeClaim{claimName readOnly hotpluggable} dataVolume{name hotpluggable} containerDisk{image path imagePullPolicy}
		ephemeral{persistentVolumeClaim{claimName readOnly}} emptyDisk{capacity:quantity} hostDisk{path type capacity:quantity shared}
		cloudInitNoCloud{secretRef{name} networkDataSecretRef{name}} cloudInitConfigDrive{secretRef{name} networkDataSecretRef{name}}
		sysprep{secret{name} configMap{name}} configMap{name optional} secret{secretName optional} serviceAccount{serviceAccountName}
		downwardMetrics memoryDump{claimName readOnly hotpluggable}`
	credential = `sshPublicKey{source{secret{secretName}} propagationMethod{configDrive noCloud qemuGuestAgent{users}}}
		userPassword{source{secret{secretName}} propagationMethod{qemuGuestAgent}}`
	probe   = `initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold guestAgentPing tcpSocket{port}`
	vmiSpec = `priorityClassName domain:domain nodeSelector:labels affinity:affinity schedulerName tolerations:toleration
		topologySpreadConstraints:spread evictionStrategy startStrategy terminationGracePeriodSeconds volumes:volume utilityVolumes{name claimName readOnly type} livenessProbe:probe
		readinessProbe:probe hostname subdomain networks{name pod{vmNetworkCIDR vmIPv6NetworkCIDR} multus{networkName default}}
		dnsPolicy accessCredentials:credential architecture resourceClaims{name resourceClaimName resourceClaimTemplateName}`
	claimInfo = `claimName accessModes volumeMode capacity:quantities requests:quantities preallocated filesystemOverhead`
	migrated  = `volumeName sourcePVCInfo:claimInfo destinationPVCInfo:claimInfo`
	migrating = `nodeDrainTaintKey parallelOutboundMigrationsPerNode parallelMigrationsPerCluster allowAutoConverge
		bandwidthPerMigration:quantity completionTimeoutPerGiB maxDowntimeMs progressTimeout utilityVolumesTimeout unsafeMigrationOverride
		allowPostCopy allowWorkloadDisruption disableTLS network matchSELinuxLevelOnMigration`
	migrationSide  = `node pod migrationUID persistentStatePVCName virtualMachineInstanceUID`
	migrationState = `startTimestamp endTimestamp targetNodeDomainReadyTimestamp targetNodeDomainDetected targetNodeAddress targetNode
		targetPod targetAttachmentPodUID sourceNode sourcePod completed failed abortRequested abortStatus failureReason:text migrationUid mode
		migrationPolicyName migrationConfiguration:migrating targetCPUSet sourcePersistentStatePVCName targetPersistentStatePVCName
		sourceState:migrationSide targetState:migrationTarget migrationNetworkType targetMemoryOverhead:quantity`
	phaseTimes = `phase phaseTransitionTimestamp`
	vmiStatus  = `nodeName reason conditions:condition phase phaseTransitionTimestamps:phaseTimes migrationState:migrationState
		interfaces{ipAddress mac name ipAddresses podInterfaceName interfaceName infoSource queueCount linkState}
		guestOSInfo{name kernelRelease version prettyName versionId kernelVersion machine id} migrationMethod migrationTransport qosClass
		launcherContainerImageVersion evacuationNodeName activePods:pods fsFreezeStatus virtualMachineRevisionName runtimeUser VSOCKCID
		selinuxContext machine{type} currentCPUTopology{cores sockets threads}
		memory{guestAtBoot:quantity guestCurrent:quantity guestRequested:quantity memoryOverhead:quantity} migratedVolumes:migrated
		volumeStatus{name target phase reason message:text persistentVolumeClaimInfo:claimInfo hotplugVolume{attachPodName attachPodUID} size
			memoryDumpVolume{claimName targetFileName startTimestamp endTimestamp}
			containerDiskVolume{checksum}} kernelBootStatus{kernelInfo{checksum} initrdInfo{checksum}}`
)

const (
	storageSpec    = `accessModes selector:selector resources:resources volumeName storageClassName volumeMode dataSource:typedRef dataSourceRef:typedRef`
	claimSpec      = storageSpec + " volumeAttributesClassName"
	dataVolumeSpec = `source{http{url:address secretRef certConfigMap insecureSkipVerify} s3{url:address secretRef certConfigMap}
			gcs{url:address secretRef} registry{url:address imageStream pullMethod secretRef certConfigMap platform{architecture}}
			pvc{namespace name} upload blank imageio{url:address secretRef certConfigMap} vddk{url:address secretRef certConfigMap initImageURL}
			snapshot{namespace name}}
		sourceRef{kind namespace name} pvc:claimSpec storage:storageSpec priorityClassName serviceAccountName contentType finalCheckpoint preallocation`
	typeRef = `name kind revisionName inferFromVolume inferFromVolumeFailurePolicy`
	vmSpec  = `running runStrategy instancetype:typeRef preference:typeRef template{metadata:metadata spec:vmiSpec}
		dataVolumeTemplates{metadata:metadata spec:dataVolumeSpec} updateVolumesStrategy`
	typeStatus = `name kind controllerRevisionRef{name} inferFromVolume inferFromVolumeFailurePolicy`
	vmStatus   = `snapshotInProgress restoreInProgress created ready printableStatus conditions:condition stateChangeRequests{action uid}
		memoryDumpRequest{claimName phase remove fileName message:text startTimestamp endTimestamp}
		volumeRequests{addVolumeOptions{name disk:disk volumeSource:plugged dryRun} removeVolumeOptions{name dryRun}}
		volumeSnapshotStatuses{name enabled reason:text} startFailure{consecutiveFailCount lastFailedVMIUID retryAfterTimestamp}
		observedGeneration desiredGeneration runStrategy volumeUpdateState{volumeMigrationState{migratedVolumes:migrated}}
		instancetypeRef:typeStatus preferenceRef:typeStatus`
	rate          = `restClient{rateLimiter{tokenBucketRateLimiter{qps burst}}}`
	rotation      = `duration renewBefore`
	placement     = `nodePlacement{nodeSelector:labels affinity:affinity tolerations:toleration} replicas`
	configuration = `cpuModel cpuRequest:quantity emulatedMachines imagePullPolicy migrations:migrating machineType evictionStrategy
		developerConfiguration{featureGates disabledFeatureGates pvcTolerateLessSpaceUpToPercent minimumReservePVCBytes memoryOvercommit
			nodeSelectors:labels useEmulation cpuAllocationRatio minimumClusterTSCFrequency diskVerification{memoryLimit:quantity}
			logVerbosity{virtAPI virtController virtHandler virtLauncher virtOperator} clusterProfiler}
		network{defaultNetworkInterface permitSlirpInterface permitBridgeInterfaceOnPodNetwork} ovmfPath selinuxLauncherType defaultRuntimeClass
		architectureConfiguration{amd64{ovmfPath emulatedMachines machineType} defaultArchitecture} additionalGuestMemoryOverheadRatio
		supportedGuestAgentVersions memBalloonStatsPeriod minCPUModel virtualMachineInstancesPerNode
		permittedHostDevices{pciHostDevices{pciVendorSelector resourceName externalResourceProvider}
			mediatedDevices{mdevNameSelector resourceName externalResourceProvider} usb{resourceName externalResourceProvider}}
		apiConfiguration:rate webhookConfiguration:rate controllerConfiguration:rate handlerConfiguration:rate
		tlsConfiguration{minTLSVersion ciphers} vmStateStorageClass virtualMachineOptions{disableFreePageReporting disableSerialConsoleLog}
		autoCPULimitNamespaceLabelSelector:selector liveUpdateConfiguration{maxHotplugRatio maxCpuSockets maxGuest:quantity} vmRolloutStrategy
		commonInstancetypesDeployment{enabled} virtTemplateDeployment{enabled} instancetype{referencePolicy} roleAggregationStrategy`
	kubeVirtSpec = `imageTag imageRegistry imagePullPolicy monitorNamespace serviceMonitorNamespace monitorAccount
		workloadUpdateStrategy{workloadUpdateMethods batchEvictionSize batchEvictionInterval} uninstallStrategy
		certificateRotateStrategy{selfSigned{caRotateInterval certRotateInterval caOverlapInterval ca:rotation server:rotation}}
		productVersion productName productComponent configuration:configuration infra:placement workloads:placement`
	kubeVirtStatus = `phase conditions:condition operatorVersion targetKubeVirtRegistry targetKubeVirtVersion targetDeploymentID
		observedKubeVirtRegistry observedKubeVirtVersion observedDeploymentID outdatedVirtualMachineInstanceWorkloads observedGeneration
		defaultArchitecture generations{group resource namespace name lastGeneration hash}`
	instancetypeSpec = `nodeSelector:labels schedulerName cpu{guest model dedicatedCPUPlacement numa{guestMappingPassthrough} isolateEmulatorThread
			realtime{mask} maxSockets} memory{guest:quantity hugepages{pageSize} overcommitPercent maxGuest:quantity} gpus:gpu hostDevices:gpu
		ioThreadsPolicy ioThreads{supplementalPoolThreadCount}`
	preferenceSpec = `clock{preferredClockOffset:clock preferredTimer:timer}
		cpu{preferredCPUTopology spreadOptions{across ratio} preferredCPUFeatures{name policy}}
		devices{preferredAutoattachGraphicsDevice preferredAutoattachMemBalloon preferredAutoattachPodInterface preferredAutoattachSerialConsole
			preferredAutoattachInputDevice preferredDisableHotplug preferredSoundModel preferredUseVirtioTransitional preferredInputBus
			preferredInputType preferredDiskBus preferredLunBus preferredCdromBus preferredDiskDedicatedIoThread preferredDiskCache preferredDiskIO
			preferredDiskBlockSize:blockSize preferredInterfaceModel preferredRng preferredBlockMultiQueue preferredNetworkInterfaceMultiQueue
			preferredTPM{enabled persistent} preferredInterfaceMasquerade preferredPanicDeviceModel preferredVideoType}
		features{preferredAcpi{enabled} preferredApic{enabled endOfInterrupt} preferredHyperv:hyperv preferredKvm{hidden}
			preferredPvspinlock{enabled} preferredSmm{enabled}}
		firmware{preferredUseBios preferredUseBiosSerial preferredUseEfi preferredUseSecureBoot preferredEfi{secureBoot persistent}}
		machine{preferredMachineType} volumes{preferredStorageClassName} preferredSubdomain preferredTerminationGracePeriodSeconds
		requirements{cpu{guest} memory{guest:quantity} architecture} preferSpreadSocketToCoreRatio preferredArchitecture`
)

// parts are the rules that others name, after those that they name themselves.
var parts = []struct{ name, rule string }{
	{"selector", selector}, {"metadata", metadata}, {"condition", condition}, {"podTerm", podTerm}, {"nodeTerm", nodeTerm},
	{"podAffinity", podAffinity}, {"affinity", affinity}, {"toleration", toleration}, {"spread", spread}, {"resources", resources},
	{"typedRef", typedRef}, {"container", container}, {"containerState", containerState}, {"containerStatus", containerStatus},
	{"podSpec", podSpec}, {"podStatus", podStatus}, {"workloadStatus", workloadStatus},
	{"blockSize", bootOrderAndSize}, {"disk", disk}, {"hyperv", hyperv}, {"clock", clock}, {"timer", timer}, {"gpu", gpu}, {"nic", nic},
	{"devices", devices}, {"domain", domain}, {"plugged", plugged}, {"volume", volume}, {"credential", credential}, {"probe", probe}, {"vmiSpec", vmiSpec},
	{"claimInfo", claimInfo}, {"migrated", migrated}, {"migrating", migrating}, {"migrationSide", migrationSide},
	{"migrationTarget", migrationSide + " domainReadyTimestamp domainDetected nodeAddress attachmentPodUID"},
	{"migrationState", migrationState}, {"phaseTimes", phaseTimes}, {"vmiStatus", vmiStatus},
	{"storageSpec", storageSpec}, {"claimSpec", claimSpec}, {"dataVolumeSpec", dataVolumeSpec}, {"typeRef", typeRef}, {"vmSpec", vmSpec}, {"typeStatus", typeStatus},
	{"vmStatus", vmStatus}, {"rate", rate}, {"rotation", rotation}, {"placement", placement}, {"configuration", configuration},
	{"kubeVirtSpec", kubeVirtSpec}, {"kubeVirtStatus", kubeVirtStatus}, {"instancetypeSpec", instancetypeSpec},
	{"preferenceSpec", preferenceSpec},
}

// allowedOf has the rule of each kind, beside apiVersion, kind and metadata. Kinds that are not here show their metadata only,
// as do those without a rule.
var allowedOf = map[string]string{
	"nodes": `spec{unschedulable podCIDR podCIDRs providerID taints{key value effect timeAdded}}
		status{capacity:quantities allocatable:quantities conditions:condition addresses{type address} daemonEndpoints{kubeletEndpoint{Port}}
			nodeInfo{machineID systemUUID bootID kernelVersion osImage containerRuntimeVersion kubeletVersion kubeProxyVersion operatingSystem architecture}
			volumesAttached{name} volumesInUse}`,
	"namespaces":             `status{phase}`,
	"pods":                   `spec:podSpec status:podStatus`,
	"persistentvolumeclaims": `spec:claimSpec status{phase accessModes capacity:quantities conditions:condition allocatedResources:quantities}`,
	"persistentvolumes": `spec{capacity:quantities accessModes claimRef:typedRef persistentVolumeReclaimPolicy storageClassName volumeMode
			csi{driver volumeHandle fsType readOnly} local{path} hostPath{path type} nodeAffinity{required{nodeSelectorTerms:nodeTerm}}}
		status{phase reason message:text lastPhaseTransitionTime}`,
	"events": `involvedObject{apiVersion kind name namespace uid fieldPath} reason message:text type count firstTimestamp lastTimestamp eventTime
		series{count lastObservedTime} source{component host} reportingComponent reportingInstance action`,
	"resourcequotas":              `spec{hard:quantities scopes} status{hard:quantities used:quantities}`,
	"limitranges":                 `spec{limits{type default:quantities defaultRequest:quantities max:quantities min:quantities maxLimitRequestRatio:quantities}}`,
	"deployments.apps":            `spec{replicas strategy{type rollingUpdate{maxUnavailable maxSurge}} template{metadata:metadata spec:podSpec}} status:workloadStatus`,
	"daemonsets.apps":             `spec{updateStrategy{type rollingUpdate{maxUnavailable maxSurge}} template{metadata:metadata spec:podSpec}} status:workloadStatus`,
	"controllerrevisions.apps":    `revision`,
	"leases.coordination.k8s.io":  `spec{holderIdentity leaseDurationSeconds acquireTime renewTime leaseTransitions}`,
	"poddisruptionbudgets.policy": `spec{minAvailable maxUnavailable selector:selector} status{currentHealthy desiredHealthy disruptionsAllowed expectedPods observedGeneration conditions:condition}`,
	"apiservices.apiregistration.k8s.io": `spec{group version service{name namespace port} groupPriorityMinimum versionPriority insecureSkipTLSVerify}
		status{conditions:condition}`,
	"storageclasses.storage.k8s.io":                 `provisioner reclaimPolicy volumeBindingMode allowVolumeExpansion`,
	"volumesnapshotclasses.snapshot.storage.k8s.io": `driver deletionPolicy`,
	"volumesnapshots.snapshot.storage.k8s.io": `spec{volumeSnapshotClassName source{persistentVolumeClaimName volumeSnapshotContentName}}
		status{boundVolumeSnapshotContentName creationTime readyToUse restoreSize:quantity error{time message:text}}`,
	"virtualmachines.kubevirt.io":                   `spec:vmSpec status:vmStatus`,
	"virtualmachineinstances.kubevirt.io":           `spec:vmiSpec status:vmiStatus`,
	"virtualmachineinstancereplicasets.kubevirt.io": `spec{replicas paused selector:selector template{metadata:metadata spec:vmiSpec}} status{replicas readyReplicas labelSelector conditions:condition}`,
	"virtualmachineinstancemigrations.kubevirt.io": `spec{vmiName addedNodeSelector:labels priority}
		status{phase conditions:condition phaseTransitionTimestamps:phaseTimes migrationState:migrationState}`,
	"kubevirts.kubevirt.io":                    `spec:kubeVirtSpec status:kubeVirtStatus`,
	"migrationpolicies.migrations.kubevirt.io": `spec{selectors{namespaceSelector:labels virtualMachineInstanceSelector:labels} allowAutoConverge bandwidthPerMigration:quantity completionTimeoutPerGiB maxDowntimeMs allowPostCopy allowWorkloadDisruption}`,
	"virtualmachinesnapshots.snapshot.kubevirt.io": `spec{source:typedRef deletionPolicy failureDeadline}
		status{sourceUID virtualMachineSnapshotContentName creationTime phase readyToUse error{time message:text} conditions:condition indications
			sourceIndications{indication message:text} snapshotVolumes{includedVolumes excludedVolumes}}`,
	"virtualmachinesnapshotcontents.snapshot.kubevirt.io": `spec{virtualMachineSnapshotName
			source{virtualMachine{metadata:metadata spec:vmSpec status:vmStatus}}
			volumeBackups{volumeName persistentVolumeClaim{metadata:metadata spec:claimSpec} volumeSnapshotName}}
		status{creationTime readyToUse error{time message:text} volumeSnapshotStatus{volumeSnapshotName creationTime readyToUse error{time message:text}}}`,
	"virtualmachinerestores.snapshot.kubevirt.io": `spec{target:typedRef virtualMachineSnapshotName targetReadinessPolicy volumeRestorePolicy
			volumeOwnershipPolicy volumeRestoreOverrides{volumeName restoreName}}
		status{restores{volumeName persistentVolumeClaim volumeSnapshotName dataVolumeName} restoreTime deletedDataVolumes complete conditions:condition}`,
	"virtualmachineclones.clone.kubevirt.io": `spec{source:typedRef target:typedRef volumeNamePolicy}
		status{creationTime phase conditions:condition snapshotName restoreName targetName}`,
	"virtualmachineinstancetypes.instancetype.kubevirt.io":        `spec:instancetypeSpec`,
	"virtualmachineclusterinstancetypes.instancetype.kubevirt.io": `spec:instancetypeSpec`,
	"virtualmachinepreferences.instancetype.kubevirt.io":          `spec:preferenceSpec`,
	"virtualmachineclusterpreferences.instancetype.kubevirt.io":   `spec:preferenceSpec`,
	"datavolumes.cdi.kubevirt.io":                                 `spec:dataVolumeSpec status{claimName phase progress restartCount conditions:condition}`,
	"datasources.cdi.kubevirt.io":                                 `spec{source{pvc{namespace name} snapshot{namespace name} dataSource{namespace name}}} status{conditions:condition}`,
	"storageprofiles.cdi.kubevirt.io": `spec{cloneStrategy claimPropertySets{accessModes volumeMode} dataImportCronSourceFormat snapshotClass}
		status{storageClass provisioner cloneStrategy claimPropertySets{accessModes volumeMode} dataImportCronSourceFormat snapshotClass conditions:condition}`,
	"cdis.cdi.kubevirt.io": `status{phase conditions:condition operatorVersion targetVersion observedVersion}`,

	// Answers of subresources, and facts of the diagnosis itself.
	"guestosinfo.subresources.kubevirt.io": `guestAgentVersion supportedCommands{name enabled} hostname
		os{name kernelRelease version prettyName versionId kernelVersion machine id} timezone fsFreezeStatus
		fsInfo{disks{diskName mountPoint fileSystemType usedBytes totalBytes}}`,
	"filesystemlist.subresources.kubevirt.io": `items{diskName mountPoint fileSystemType usedBytes totalBytes}`,
	"version.subresources.kubevirt.io":        `major minor gitVersion gitCommit gitTreeState buildDate goVersion compiler platform`,
	"authorities.diagnose.drydock.dev":        `authorities{entry notBefore notAfter}`,
	"state.diagnose.drydock.dev": `qemu{runState migration cpus drives{device ioStatus readOnly} jobs{id type status}}
		process{residentKiB swappedKiB threads} cgroup{memoryBytes memoryPeakBytes oomKills cpuMicroseconds throttledMicroseconds}`,
}

// kinds has the parsed rules; "" is that of unknown kinds.
var kinds = sync.OnceValue(parseAll)

func parseAll() map[string]rule {
	named := map[string]rule{
		"text": {form: message}, "quantity": number, "address": {form: address}, "quantities": {form: each, anyKey: &number},
		"expression": {form: expression}, "labels": {form: keyed, anyKey: &plainValue}, "pods": {form: each, anyKey: &plainValue},
	}
	named["annotations"] = rule{form: keyed, fields: parse(annotations, named).fields}
	for _, part := range parts {
		named[part.name] = parse(part.rule, named)
	}
	identity := parse("apiVersion kind metadata:metadata", named)
	all := map[string]rule{"": identity}
	for kind, text := range allowedOf {
		all[kind] = identity.and(parse(text, named))
	}
	return all
}
