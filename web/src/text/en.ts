// All texts of the pages. A translation is another file with the same keys.
import type { Obstacle, ActionName } from '../machine/actions';
import type { Effect } from '../machine/pending';
import type { Tab } from '../shell/route';
import type { Fact } from '../cluster/typefacts';
import type { Field } from '../create/form';
import type { SourceKind } from '../volumes/state';

const count = (n: number, one: string, many: string): string => `${String(n)} ${n === 1 ? one : many}`;

const statuses: Record<string, string> = {
  Stopped: 'Stopped', Starting: 'Starting', Running: 'Running', Paused: 'Paused', Migrating: 'Migrating', Stopping: 'Stopping',
  Terminating: 'Being deleted', Maintenance: 'In maintenance', CrashLoopBackOff: 'Failed to start, waits to try again',
  ErrorUnschedulable: 'No node fits', WaitingForVolumeBinding: 'Waits for a volume', Provisioning: 'Disks are being filled',
  DataVolumeError: 'A disk has a problem', ErrorPvcNotFound: 'A claim is missing', ErrImagePull: "Image can't be pulled",
  ImagePullBackOff: "Image can't be pulled", Unknown: "Node doesn't answer", Pending: 'Pending', Scheduling: 'Waits for a node',
  Scheduled: 'Starting', Succeeded: 'Ended', Failed: 'Failed',
};

const obstacles: Record<Obstacle, string> = {
  runs: 'The machine already runs.',
  doesNotRun: 'The machine does not run.',
  isStopped: 'The machine is stopped.',
  isPaused: 'The machine is already paused.',
  isNotPaused: 'The machine is not paused.',
  migrates: 'The machine is migrating.',
  doesNotMigrate: 'The machine is not migrating.',
  inMaintenance: 'The disks are locked for maintenance. End the maintenance first.',
  notInMaintenance: 'The machine is not in maintenance.',
  notMigratable: 'The machine can’t migrate:',
  noVM: 'This is an instance without a VirtualMachine.',
  isDeleted: 'It is being deleted.',
};

const actions: Record<ActionName, string> = {
  start: 'Start', stop: 'Stop', restart: 'Restart', pause: 'Pause', unpause: 'Continue', migrate: 'Migrate',
  cancelMigration: 'Cancel the migration', takeMaintenance: 'Begin maintenance', releaseMaintenance: 'End maintenance',
  clone: 'Clone', delete: 'Delete',
};

const asked: Record<ActionName, string> = {
  start: 'Start was requested', stop: 'Stop was requested', restart: 'Restart was requested', pause: 'Paused',
  unpause: 'Continued', migrate: 'A migration was requested', cancelMigration: 'The migration’s end was requested',
  takeMaintenance: 'Maintenance was requested', releaseMaintenance: 'The end of maintenance was requested',
  clone: 'A clone was requested', delete: 'Deletion was requested',
};

const tabNames: Record<Tab, string> = {
  overview: 'Overview', console: 'Serial console', screen: 'Screen', disks: 'Disks and NICs', snapshots: 'Snapshots and clones',
  events: 'Events', yaml: 'YAML',
};

const clonePhases: Record<string, string> = {
  '': 'Not begun', SnapshotInProgress: 'Taking a snapshot', RestoreInProgress: 'Copying the disks', CreatingTargetVM: 'Making the machine',
  Succeeded: 'Complete', Failed: 'Failed',
};

const volumePhases: Record<string, string> = {
  '': 'Not begun', Pending: 'Not begun', WaitForFirstConsumer: 'Waits for its first user', PVCBound: 'Has its claim', ImportScheduled: 'Import begins',
  ImportInProgress: 'Importing', UploadScheduled: 'Upload begins', UploadReady: 'Waits for an upload', CloneScheduled: 'Copy begins',
  CloneInProgress: 'Copying', CSICloneInProgress: 'Copied by the storage', SnapshotForSmartCloneInProgress: 'Copied by the storage',
  CloneFromSnapshotSourceInProgress: 'Copying a snapshot', Succeeded: 'Complete', Failed: 'Failed', Paused: 'Paused',
};

const sourceNames: Record<SourceKind | 'dataSource', string> = {
  http: 'Address', registry: 'Container image', upload: 'Upload', blank: 'Empty', pvc: 'Claim', snapshot: 'Snapshot', ref: 'DataSource',
  dataSource: 'DataSource', other: 'Another source',
};

const factNames = {
  dedicated: 'CPUs of its own', efi: 'UEFI', secureBoot: 'UEFI with Secure Boot', tpm: 'TPM', hugepages: 'huge pages of', overcommit: 'memory overcommitted by percent:',
  device: 'device', topology: 'CPUs as', diskBus: 'disks by', nicModel: 'NICs by', maxMemory: 'memory up to',
};

const effects: Record<Effect, string> = { live: 'While it runs', migration: 'By a migration', restart: 'By a restart' };

const fields: Record<Field, string> = {
  name: 'Name', namespace: 'Namespace', start: 'Start the machine when it is created', source: 'Disk from', image: 'Image',
  url: 'Address of the image', claim: 'Claim or DataVolume', size: 'Size of the disk', storageClass: 'Storage class',
  instanceType: 'Instance type', preference: 'Preference', cpus: 'CPUs', memory: 'Memory', sshKeys: 'SSH public keys',
  userData: 'User data (cloud-init)',
};

export const en = {
  product: 'Drydock',
  skip: 'Skip to content',
  mainNavigation: 'Main navigation',
  toggleNavigation: 'Show or hide the navigation',
  close: 'Close',
  cancel: 'Cancel',
  none: 'None',
  unknown: 'Unknown',
  retry: 'Try again now',
  reload: 'Load again',
  details: 'Details',
  loading: 'Loading',
  theme: { label: 'Colours', light: 'Light', dark: 'Dark', system: 'As the system' },
  nav: { machines: 'Machines', create: 'New machine', volumes: 'Images and volumes', types: 'Instance types', nodes: 'Nodes', migrations: 'Migrations' },
  count: {
    machines: (n: number): string => count(n, 'machine', 'machines'),
    selected: (n: number): string => `${String(n)} selected`,
    shownOf: (n: number, all: number): string => (n === all ? count(n, 'machine', 'machines') : `${String(n)} of ${String(all)} machines`),
  },
  session: {
    opening: 'Opening the session',
    noneTitle: 'This address opens no session',
    none: 'Run “virtctl web” and open the address that it prints. An address is good once, for five minutes.',
    endedTitle: 'The session has ended',
    foreign: 'Another program answers at the address of this page, perhaps another user’s. Close this page, and run “virtctl web” again.',
    ended: 'The server no longer knows this session. Run “virtctl web” again and open the address that it prints.',
  },
  signIn: {
    title: 'Sign in',
    help: 'Use a token that the cluster knows, for example of a service account: kubectl create token NAME. The console has the rights of that token, and no others. The page does not keep it.',
    token: 'Token',
    provider: 'Sign in with your account',
    do: 'Sign in',
    refused: 'You are not signed in',
    out: 'Sign out',
  },
  failure: {
    title: 'The server refused',
    unreachableTitle: 'The server does not answer',
    listTitle: (of: string): string => `${of} can’t be read`,
    stale: 'The list below is as it was before.',
    advice: (code: number, reason: string): string => {
      if (code === 0) return 'Check that “virtctl web” still runs and that the cluster can be reached; the page tries again by itself where it follows a list.';
      if (code === 401) return 'Run “virtctl web” again and open the address that it prints.';
      if (code === 403) return 'Ask the cluster’s administrator for this right, or choose a namespace in which you have it.';
      if (code === 404) return 'It may have been deleted, or the cluster does not serve this kind.';
      if (code === 409 && reason === 'AlreadyExists') return 'Choose another name.';
      if (code === 409) return 'It has changed, or its state does not allow this now. Look at its present state and try again.';
      if (code === 400 || code === 422) return 'Correct the named fields and try again.';
      if (code === 429) return 'The server is busy. Try again in a few seconds.';
      return code >= 500 ? 'Try again; if that does not help, look at the logs of the component that is named.' : '';
    },
  },
  fault: {
    title: 'This part of the page has failed',
    again: 'Try again',
    reload: 'Load the page again',
    advice: 'The other parts go on, and what you typed in the form of a new machine is kept. Try again; if that does not help, load the page again, and report the sentence above to Drydock’s maintainers.',
  },
  rights: {
    checking: 'The server has not yet said whether you may do this.',
    missing: (what: string): string => `You may not ${what} in this namespace. Ask the cluster’s administrator for this right.`,
    missingSome: (what: string): string => `You may not ${what} in all namespaces of the selection.`,
  },
  live: {
    listing: 'Reading the list', watching: 'Live', paused: 'Paused while the tab is hidden', waiting: 'Connection lost, trying again', refused: 'Not readable',
  },
  status: (status: string): string => statuses[status] ?? status,
  noStatus: 'No status yet',
  obstacle: (o: Obstacle): string => obstacles[o],
  action: (a: ActionName): string => actions[a],
  asked: (a: ActionName, name: string): string => `${asked[a]}: ${name}`,
  tab: (tab: Tab): string => tabNames[tab],
  notFound: {
    title: 'There is no such page',
    text: 'The address may have been copied incompletely.',
    back: 'To the machines',
  },
  machines: {
    title: 'Machines',
    all: 'All namespaces',
    namespace: 'Namespace',
    find: 'Find machines by name, status, node or address',
    findShort: 'Find',
    anyStatus: 'Any status',
    statusFilter: 'Status',
    columns: { name: 'Name', namespace: 'Namespace', status: 'Status', node: 'Node', address: 'Address', cpus: 'CPUs', memory: 'Memory' },
    select: (name: string): string => `Select ${name}`,
    selectAll: 'Select all shown machines',
    clear: 'Clear the selection',
    emptyTitle: 'There are no machines here',
    empty: 'Create one, or choose another namespace.',
    noMatchTitle: 'No machine matches',
    noMatch: 'Change the words or the status, or clear them.',
    clearFilter: 'Clear the filter',
    instance: 'Instance without a VM',
    restart: 'Changes wait for a restart',
    bulk: 'Actions on the selection',
    confirm: (action: string, n: number): string => `${action} ${count(n, 'machine', 'machines')}?`,
    confirmText: { stop: 'Each guest is asked to shut down, and switched off when its grace period is over.', restart: 'Each guest is shut down and started again.', start: '' },
    skipped: (n: number): string => `${count(n, 'machine is', 'machines are')} left out, because the action is not possible in the state that they have.`,
    bulkDone: (action: string, n: number): string => `${action}: requested for ${count(n, 'machine', 'machines')}`,
    bulkFailed: (action: string, n: number): string => `${action}: refused for ${count(n, 'machine', 'machines')}`,
    noneFits: 'No selected machine is in a state in which this is possible.',
    noneSelected: 'Select machines first.',
    tableLabel: 'Machines',
  },
  pictures: {
    column: 'Screen',
    title: 'Screen',
    show: 'Pictures of screens',
    of: (name: string): string => `Picture of the screen of ${name}`,
    notYet: (name: string): string => `No picture of the screen of ${name} yet`,
  },
  machine: {
    missingTitle: 'There is no such machine',
    missing: (namespace: string, name: string): string => `Namespace ${namespace} has no VirtualMachine and no VirtualMachineInstance named ${name}.`,
    more: 'More actions',
    tabs: 'Parts of the machine',
    breadcrumb: 'Place',
    confirmStop: 'The guest is asked to shut down, and switched off when its grace period is over.',
    confirmRestart: 'The guest is shut down and started again. Programs in it end.',
    confirmDelete: 'The machine is deleted, and with it the disks that were made for it. This can’t be undone.',
    confirmDeleteName: (name: string): string => `Type ${name} to confirm`,
    confirmMaintenance: 'A pod gets the disks as soon as the machine is stopped; until the maintenance ends, the machine can’t start. Use the pod with “kubectl exec”. Choose the image and the command with “virtctl maintenance take” if the defaults do not serve.',
    confirmMaintenanceRuns: 'The machine runs: the pod waits until it is stopped.',
    readOnly: 'Mount the disks for reading only',
  },
  overview: {
    waits: 'Needs attention',
    nothing: 'Nothing is waited for.',
    summary: 'Summary',
    status: 'Status', strategy: 'Run strategy', node: 'Node', addresses: 'Addresses', cpus: 'CPUs', memory: 'Memory', os: 'Guest system',
    created: 'Created', started: 'Running since', instanceType: 'Instance type', preference: 'Preference', acceleration: 'Accelerated', yes: 'Yes', no: 'No',
    agent: 'Guest agent', agentYes: 'Connected', agentNo: 'Not connected',
    pending: 'Pending changes', change: 'Change', effect: 'Takes effect', waitsFor: 'Waits for', wholeMachine: 'the machine',
    migration: 'Migration', migrationOf: (phase: string): string => `The migration is ${phase}`,
    from: 'From', to: 'To', conditions: 'Conditions', condition: 'Condition', value: 'Status', reason: 'Reason', message: 'Message', since: 'Since',
    maintenance: 'Maintenance', holder: 'Pod with the disks', queue: 'Pods that wait', noHolder: 'No pod has the disks.',
    use: (namespace: string, pod: string): string => `kubectl exec -it -n ${namespace} ${pod} -- bash`,
    cpuText: (n: number): string => count(n, 'CPU', 'CPUs'),
    byInstanceType: 'by the instance type',
    startFailures: (n: number): string => `Failed to start ${count(n, 'time', 'times')} in a row`,
    nextTry: 'Next attempt',
  },
  pending: {
    effect: (e: Effect): string => effects[e],
    restart: (why: string): string => `a restart of the machine: ${why}`,
    by: (by: string, phase: string, what: string): string => `migration ${by}, which is ${phase}: ${what}`,
    immovable: (why: string, what: string): string => `a migration, which can’t be made (${why}): ${what}`,
    migration: (what: string): string => `a migration, which is made where the cluster’s workloadUpdateMethods have LiveMigrate, or by the action Migrate: ${what}`,
    place: (what: string): string => `the launcher pod to get it in place, or ten seconds without that, and then a migration: ${what}`,
    plug: 'the guest to get the interface, which its launcher pod has',
    unplug: 'the guest to release the interface',
    volume: (phase: string, message: string): string => `the volume, which is ${phase}${message === '' ? '' : `: ${message}`}`,
    afterMigration: (by: string, phase: string): string => `the end of migration ${by}, which is ${phase}: the instance gets nothing while it is being migrated`,
    node: (message: string): string => `the node: ${message}`,
  },
  console: {
    label: 'Serial console',
    hint: 'What you type goes to the guest, Tab as well. Ctrl+] leaves the console.',
    connecting: 'Connecting',
    connected: 'Connected',
    ended: 'The console was closed',
    reconnect: 'Connect again',
    notRunning: 'The machine does not run. The console opens when it does.',
    noDevice: 'This machine has no serial console (autoattachSerialConsole is false).',
    refused: 'The console can’t be opened. Another session may hold it, or you may not use it.',
  },
  screen: {
    label: 'Screen of the guest',
    hint: 'Keys go to the guest while the screen has the focus. Ctrl+] leaves it. Other viewers see the same screen.',
    notRunning: 'The machine does not run. The screen opens when it does.',
    noDevice: 'This machine has no graphics device (autoattachGraphicsDevice is false).',
    refused: 'The screen can’t be opened. You may not use it, or the guest is just moving.',
    keys: 'Send keys',
    fullScreen: 'Full screen',
    typeText: 'Type text',
    typeTitle: 'Type a text in the guest',
    typeHint: 'The characters are sent as single keys.',
    send: 'Send',
    text: 'Text',
    viewOnly: 'Only look',
  },
  disks: {
    disks: 'Disks', nics: 'Network interfaces', name: 'Name', bus: 'Bus', source: 'Source', size: 'Size', state: 'State', target: 'In the guest',
    actions: 'Actions', plug: 'Plug a disk', unplug: 'Unplug', claim: 'Claim', plugged: 'plugged',
    persist: 'Keep it for the next start', plugTitle: 'Plug a disk from a claim',
    plugText: 'The claim is plugged as a SCSI disk while the guest runs.', noClaims: 'This namespace has no further claims.',
    unplugTitle: (name: string): string => `Unplug ${name}?`,
    unplugText: 'The guest loses the disk. Unmount its file systems in the guest first.',
    unplugFixed: 'Only hotplugged volumes can be unplugged.',
    added: (name: string): string => `Plugging was requested: ${name}`,
    removed: (name: string): string => `Unplugging was requested: ${name}`,
    network: 'Network', binding: 'Binding', mac: 'MAC address', address: 'Addresses', link: 'Link', podNetwork: 'pod network',
    noDisks: 'This machine has no disks.', noNICs: 'This machine has no network interfaces.', choose: 'Choose a claim', noVolume: 'empty',
  },
  snapshots: {
    title: 'Snapshots', take: 'Take a snapshot', takeTitle: 'Take a snapshot', name: 'Name', phase: 'State', created: 'Taken', volumes: 'Volumes',
    actions: 'Actions', restore: 'Restore', clone: 'Clone', delete: 'Delete', empty: 'There are no snapshots of this machine.',
    restoreTitle: (name: string): string => `Restore from ${name}?`,
    restoreText: 'The machine gets the snapshot’s settings and disks. What was written to its disks since is lost to the machine; the old claims stay.',
    restoreRuns: 'The machine runs: the restore stops it first, and it stays stopped.',
    deleteTitle: (name: string): string => `Delete ${name}?`, deleteText: 'The snapshot’s content is deleted with it, unless its policy is to retain it.',
    restores: 'Restores', complete: 'Complete', notComplete: 'In progress', from: 'From', ready: 'Ready', notReady: 'The snapshot is not ready.',
    taken: (name: string): string => `Snapshot requested: ${name}`, restored: (name: string): string => `Restore requested: ${name}`,
    deleted: (name: string): string => `Deletion requested: ${name}`, excluded: (names: string): string => `not included: ${names}`,
    noVM: 'Only VirtualMachines can be snapshotted; this is an instance without one.',
  },
  clones: {
    heading: 'Clones', clone: 'Clone', title: (name: string): string => `Clone ${name}`, name: 'Name of the new machine',
    textMachine: 'A new, stopped machine gets a copy of this one’s settings and disks, and an identity of its own: other MAC addresses, another firmware UUID.',
    textSnapshot: 'A new, stopped machine gets a copy of the snapshot’s settings and disks, and an identity of its own: other MAC addresses, another firmware UUID.',
    textRuns: 'The machine runs: the copy has its disks as they are at one moment, as after a power failure.',
    machine: 'Machine', from: 'From', state: 'State', says: 'Says', made: 'Requested',
    phase: (phase: string): string => clonePhases[phase] ?? phase,
  },
  events: { title: 'Events', when: 'When', type: 'Type', reason: 'Reason', message: 'Message', count: 'Times', object: 'Object', empty: 'There are no events. The cluster keeps them for about an hour.' },
  yaml: {
    label: 'Manifest in YAML', check: 'Check', save: 'Save', revert: 'Load the present version', checked: 'The server accepts this manifest. Nothing is changed yet.',
    saved: 'Saved', invalid: 'This is not YAML', changed: 'The object has changed on the server since it was loaded. Saving would be refused; load the present version.',
    notObject: 'The manifest must be one object.', identity: 'Kind, name and namespace can’t be changed here.', unchanged: 'Nothing is changed.', hint: 'Esc, then Tab leaves the editor.',
    faults: 'The server refuses this manifest', noRight: 'update',
  },
  create: {
    title: 'New machine', field: (f: Field): string => fields[f], intro: 'The server checks the whole form before anything is created.',
    sources: { containerDisk: 'Container disk (lost at each stop)', url: 'Image from an address, copied to a new disk', claim: 'Existing claim', dataVolume: 'Existing DataVolume' },
    machineSection: 'Machine', diskSection: 'Disk', sizeSection: 'Size', accessSection: 'First start',
    create: 'Create', check: 'Check', creating: 'The server checks', created: (name: string): string => `Created: ${name}`,
    accepted: 'The server accepts this manifest. Nothing is created yet.',
    faults: (n: number): string => `The server refuses this: ${count(n, 'fault', 'faults')}`, elsewhere: 'These faults belong to no field of the form',
    manifest: 'Manifest', manifestText: 'This is sent when you create the machine.', editManifest: 'Edit the manifest',
    backToForm: 'Back to the form', backText: 'The form’s values are used again; changes of the manifest are lost.',
    edited: 'The manifest is edited by hand: the form is not used.',
    ownSize: 'CPUs and memory below', noPreference: 'No preference', defaultClass: 'The cluster’s default', choose: 'Choose',
    keysLost: 'The user data is no cloud-config, so these keys can’t be added to it.',
    help: {
      name: '', image: 'For example quay.io/containerdisks/fedora:latest', url: 'http, https or docker://', size: 'For example 10Gi', memory: 'For example 2Gi',
      sshKeys: 'One per line; they are added to the user data.', userData: 'Begins with #cloud-config. It is readable in the machine’s manifest: don’t put passwords here.',
    },
    cluster: '(cluster)', unsavedNote: 'What you type is kept in this tab until the machine is created.',
    unreadable: {
      noName: 'Give the machine a name.', noNamespace: 'Choose a namespace.', noNumber: 'This must be a whole number.',
      noAmount: 'This must be an amount, such as 512Mi or 2Gi.',
    },
  },
  imports: {
    title: 'Import an image', begin: 'Import', begun: (name: string): string => `The import was requested: ${name}`,
    text: 'A new DataVolume gets the image. Its progress is in the list of DataVolumes.',
    field: { name: 'Name', namespace: 'Namespace', url: 'Address of the image', size: 'Size of the disk', storageClass: 'Storage class' },
    help: { name: '', url: 'http, https or docker://', size: 'For example 10Gi; at least as large as the disk in the image' },
  },
  volumes: {
    title: 'Images and volumes', find: 'Find volumes by name, namespace, state or source', noMatch: 'None has these words.',
    volumes: 'DataVolumes', sources: 'DataSources', claims: 'Claims', noVolumes: 'There are no DataVolumes here.', noSources: 'There are no DataSources here.',
    noClaims: 'There are no claims here.', name: 'Name', state: 'State', says: 'Says', from: 'From', size: 'Size', made: 'Created', actions: 'Actions',
    refersTo: 'Stands for', class: 'Storage class', modeHead: 'Form', owner: 'Belongs to', ready: 'Ready', notReady: 'Not ready',
    phase: (phase: string): string => volumePhases[phase] ?? phase,
    claimPhase: (phase: string): string => ({ Bound: 'Bound', Pending: 'Not bound', Lost: 'Its volume is lost' })[phase] ?? phase,
    mode: (mode: string): string => (mode === 'Block' ? 'Block' : 'File system'),
    source: (kind: SourceKind | 'dataSource'): string => sourceNames[kind],
    progressOf: (name: string): string => `Progress of ${name}`,
    upload: (namespace: string, name: string): string => `Send the image: virtctl image-upload dv ${name} -n ${namespace} --no-create --image-path=FILE`,
    more: (n: number): string => `${count(n, 'further one is', 'further ones are')} not shown. Choose a namespace, or find them by words.`,
    delete: 'Delete', deleted: (name: string): string => `Deletion was requested: ${name}`, deleteTitle: (name: string): string => `Delete ${name}?`,
    deleteText: 'The DataVolume’s claim is deleted with it, and the disk on it is lost. A machine that uses it keeps it until it stops.',
  },
  types: {
    title: 'Instance types', types: 'Instance types', preferences: 'Preferences', find: 'Find types and preferences by name',
    intro: 'A machine gets its CPUs and memory from an instance type, and what suits its operating system from a preference. Choose them in the form of a new machine.',
    name: 'Name', scope: 'Where', cpus: 'CPUs', memory: 'Memory', more: 'Also', sets: 'Sets', needs: 'Needs', cluster: 'Cluster',
    noTypes: 'There are no instance types here.', noPreferences: 'There are no preferences here.',
    fact: (fact: Fact): string => ('of' in fact ? `${factNames[fact.kind]} ${fact.of}` : factNames[fact.kind]),
    requirements: (cpus: number | undefined, memory: string): string => [cpus ? count(cpus, 'CPU', 'CPUs') : '', memory].filter((x) => x !== '').join(', '),
  },
  nodes: {
    title: 'Nodes', name: 'Name', state: 'State', ready: 'Ready', notReady: 'Not ready', cordoned: 'Takes no new pods', machines: 'Machines', cpu: 'CPU', memory: 'Memory',
    accelerator: 'Guests', kvm: 'accelerated (KVM)', tcg: 'emulated', noGuests: 'none', version: 'Kubernetes', system: 'System', empty: 'The cluster has no nodes.', schedulable: 'No machines are placed here',
  },
  migrations: {
    title: 'Migrations', name: 'Name', machine: 'Machine', phase: 'State', from: 'From', to: 'To', started: 'Began', ended: 'Ended', says: 'Says', empty: 'There are no migrations here.',
    cancel: 'Cancel', canceled: (name: string): string => `The migration’s end was requested: ${name}`, actions: 'Actions',
  },
  age: {
    now: 'just now', minutes: (n: number): string => `${count(n, 'minute', 'minutes')} ago`, hours: (n: number): string => `${count(n, 'hour', 'hours')} ago`, days: (n: number): string => `${count(n, 'day', 'days')} ago`,
  },
};

export const t = en;
