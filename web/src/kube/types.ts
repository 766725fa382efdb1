// The parts of the API's objects that the pages read. Every field may be missing.

export interface Condition {
  type: string;
  status: string;
  reason?: string;
  message?: string;
  lastTransitionTime?: string;
}

export interface OwnerReference {
  kind: string;
  name: string;
  uid: string;
}

export interface Meta {
  name: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  ownerReferences?: OwnerReference[];
  managedFields?: unknown;
}

export interface KubeObject {
  apiVersion?: string;
  kind?: string;
  metadata: Meta;
}

export interface Disk {
  name: string;
  disk?: { bus?: string };
  cdrom?: { bus?: string };
  lun?: { bus?: string };
  bootOrder?: number;
}

export interface Volume {
  name: string;
  containerDisk?: { image?: string };
  dataVolume?: { name?: string; hotpluggable?: boolean };
  persistentVolumeClaim?: { claimName?: string; hotpluggable?: boolean };
  [source: string]: unknown;
}

export interface Interface {
  name: string;
  model?: string;
  macAddress?: string;
  state?: string;
  masquerade?: object;
  bridge?: object;
  sriov?: object;
}

export interface Network {
  name: string;
  pod?: object;
  multus?: { networkName?: string };
}

export interface MachineSpec {
  domain?: {
    cpu?: { sockets?: number; cores?: number; threads?: number };
    memory?: { guest?: string };
    resources?: { requests?: Record<string, string>; limits?: Record<string, string> };
    devices?: {
      disks?: Disk[];
      interfaces?: Interface[];
      autoattachSerialConsole?: boolean;
      autoattachGraphicsDevice?: boolean;
    };
  };
  networks?: Network[];
  volumes?: Volume[];
}

export interface VM extends KubeObject {
  spec: {
    running?: boolean;
    runStrategy?: string;
    instancetype?: { name?: string; kind?: string };
    preference?: { name?: string; kind?: string };
    template?: { spec?: MachineSpec };
  };
  status?: {
    printableStatus?: string;
    ready?: boolean;
    conditions?: Condition[];
    startFailure?: { consecutiveFailCount?: number; retryAfterTimestamp?: string };
    stateChangeRequests?: { action: string }[];
    snapshotInProgress?: string;
    restoreInProgress?: string;
  };
}

export interface InterfaceStatus {
  name?: string;
  ipAddress?: string;
  ipAddresses?: string[];
  mac?: string;
  linkState?: string;
  infoSource?: string;
  interfaceName?: string;
}

export interface VolumeStatus {
  name: string;
  phase?: string;
  reason?: string;
  message?: string;
  target?: string;
  size?: number;
  hotplugVolume?: object;
  persistentVolumeClaimInfo?: { claimName?: string; capacity?: Record<string, string> };
}

export interface VMI extends KubeObject {
  spec: MachineSpec & { startStrategy?: string };
  status?: {
    phase?: string;
    reason?: string;
    nodeName?: string;
    conditions?: Condition[];
    interfaces?: InterfaceStatus[];
    volumeStatus?: VolumeStatus[];
    currentCPUTopology?: { sockets?: number; cores?: number; threads?: number };
    memory?: { guestAtBoot?: string; guestRequested?: string; guestCurrent?: string };
    guestOSInfo?: { prettyName?: string; name?: string; kernelRelease?: string };
    migrationState?: { startTimestamp?: string; sourceNode?: string; targetNode?: string; failureReason?: string };
    phaseTransitionTimestamps?: { phase?: string; phaseTransitionTimestamp?: string }[];
  };
}

export interface Migration extends KubeObject {
  spec: { vmiName?: string };
  status?: {
    phase?: string;
    conditions?: Condition[];
    migrationState?: {
      startTimestamp?: string;
      endTimestamp?: string;
      sourceNode?: string;
      targetNode?: string;
      failed?: boolean;
      failureReason?: string;
    };
  };
}

export interface Snapshot extends KubeObject {
  spec: { source?: { kind?: string; name?: string } };
  status?: {
    phase?: string;
    readyToUse?: boolean;
    creationTime?: string;
    conditions?: Condition[];
    error?: { message?: string };
    indications?: string[];
    snapshotVolumes?: { includedVolumes?: string[]; excludedVolumes?: string[] };
  };
}

export interface Restore extends KubeObject {
  spec: { target?: { kind?: string; name?: string }; virtualMachineSnapshotName?: string };
  status?: { complete?: boolean; restoreTime?: string; conditions?: Condition[] };
}

export interface Clone extends KubeObject {
  spec: { source?: { kind?: string; name?: string }; target?: { name?: string } };
  status?: { phase?: string; targetName?: string; conditions?: Condition[] };
}

export interface KubeEvent extends KubeObject {
  type?: string;
  reason?: string;
  message?: string;
  count?: number;
  firstTimestamp?: string;
  lastTimestamp?: string;
  eventTime?: string;
  series?: { count?: number; lastObservedTime?: string };
  involvedObject?: { kind?: string; name?: string; uid?: string };
}

export interface Node extends KubeObject {
  spec?: { unschedulable?: boolean };
  status?: {
    conditions?: Condition[];
    allocatable?: Record<string, string>;
    capacity?: Record<string, string>;
    nodeInfo?: { kubeletVersion?: string; osImage?: string; kernelVersion?: string; architecture?: string };
  };
}

export interface Claim extends KubeObject {
  spec?: { storageClassName?: string; volumeMode?: string; resources?: { requests?: Record<string, string> } };
  status?: { phase?: string; capacity?: Record<string, string> };
}

export interface DataVolume extends KubeObject {
  spec?: {
    source?: {
      http?: { url?: string };
      registry?: { url?: string; imageStream?: string };
      pvc?: { namespace?: string; name?: string };
      snapshot?: { namespace?: string; name?: string };
      upload?: object;
      blank?: object;
    };
    sourceRef?: { namespace?: string; name?: string };
    storage?: { resources?: { requests?: Record<string, string> } };
    pvc?: { resources?: { requests?: Record<string, string> } };
  };
  status?: { phase?: string; progress?: string; restartCount?: number; claimName?: string; conditions?: Condition[] };
}

export interface DataSource extends KubeObject {
  spec?: {
    source?: {
      pvc?: { namespace?: string; name?: string };
      snapshot?: { namespace?: string; name?: string };
      dataSource?: { namespace?: string; name?: string };
    };
  };
  status?: { conditions?: Condition[] };
}

export interface InstanceType extends KubeObject {
  spec?: {
    cpu?: { guest?: number; dedicatedCPUPlacement?: boolean; maxSockets?: number };
    memory?: { guest?: string; hugepages?: { pageSize?: string }; overcommitPercent?: number; maxGuest?: string };
    gpus?: { deviceName?: string }[];
    hostDevices?: { deviceName?: string }[];
  };
}

export interface Preference extends KubeObject {
  spec?: {
    devices?: { preferredDiskBus?: string; preferredInterfaceModel?: string; preferredTPM?: object };
    firmware?: { preferredEfi?: { secureBoot?: boolean }; preferredUseEfi?: boolean; preferredUseSecureBoot?: boolean };
    cpu?: { preferredCPUTopology?: string };
    requirements?: { cpu?: { guest?: number }; memory?: { guest?: string } };
  };
}

export interface StatusCause {
  reason?: string;
  message?: string;
  field?: string;
}

export interface Status {
  kind?: string;
  status?: string;
  code?: number;
  reason?: string;
  message?: string;
  details?: { name?: string; kind?: string; causes?: StatusCause[]; retryAfterSeconds?: number };
}

export interface List<T> {
  metadata?: { resourceVersion?: string; continue?: string; remainingItemCount?: number };
  items?: T[];
}

export interface WatchEvent<T> {
  type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK' | 'ERROR';
  object: T;
}
