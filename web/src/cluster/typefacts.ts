// The facts of an instance type besides CPUs and memory, and those that a preference sets.
import type { InstanceType, KubeObject, Preference } from '../kube/types';

export type Fact =
  | { kind: 'dedicated' | 'efi' | 'secureBoot' | 'tpm' }
  | { kind: 'hugepages' | 'overcommit' | 'device' | 'topology' | 'diskBus' | 'nicModel' | 'maxMemory'; of: string };

function texts(kind: Extract<Fact, { of: string }>['kind'], ...of: (string | undefined)[]): Fact[] {
  return of.filter((text): text is string => text !== undefined && text !== '').map((text) => ({ kind, of: text }));
}

export function typeFacts(type: InstanceType): Fact[] {
  const { cpu, memory, gpus = [], hostDevices = [] } = type.spec ?? {};
  return [
    ...(cpu?.dedicatedCPUPlacement ? [{ kind: 'dedicated' } as const] : []),
    ...texts('hugepages', memory?.hugepages?.pageSize),
    ...texts('overcommit', memory?.overcommitPercent ? String(memory.overcommitPercent) : undefined),
    ...texts('maxMemory', memory?.maxGuest),
    ...texts('device', ...gpus.map((g) => g.deviceName), ...hostDevices.map((d) => d.deviceName)),
  ];
}

export function preferenceFacts(preference: Preference): Fact[] {
  const { cpu, devices, firmware } = preference.spec ?? {};
  const secure = firmware?.preferredEfi?.secureBoot ?? firmware?.preferredUseSecureBoot ?? false;
  const efi = firmware?.preferredEfi !== undefined || (firmware?.preferredUseEfi ?? false);
  return [
    ...(secure ? [{ kind: 'secureBoot' } as const] : efi ? [{ kind: 'efi' } as const] : []),
    ...(devices?.preferredTPM ? [{ kind: 'tpm' } as const] : []),
    ...texts('diskBus', devices?.preferredDiskBus),
    ...texts('nicModel', devices?.preferredInterfaceModel),
    ...texts('topology', cpu?.preferredCPUTopology),
  ];
}

// displayName returns the name of an object for people, by the annotations that publishers of types use; '' for none.
export function displayName(of: KubeObject): string {
  const annotations = of.metadata.annotations ?? {};
  return annotations['instancetype.kubevirt.io/displayName'] ?? annotations['openshift.io/display-name'] ?? '';
}
