// The state of a machine in words: from the objects' conditions alone.
import type { Condition, Interface, MachineSpec, Migration, VM, VMI } from '../kube/types';

export function condition(of: { status?: { conditions?: Condition[] } } | undefined, type: string): Condition | undefined {
  return of?.status?.conditions?.find((c) => c.type === type);
}

export function isTrue(of: { status?: { conditions?: Condition[] } } | undefined, type: string): boolean {
  return condition(of, type)?.status === 'True';
}

export function isFinal(vmi: VMI | undefined): boolean {
  return vmi?.status?.phase === 'Succeeded' || vmi?.status?.phase === 'Failed';
}

export function isOver(migration: Migration): boolean {
  return migration.status?.phase === 'Succeeded' || migration.status?.phase === 'Failed';
}

export type Tone = 'good' | 'busy' | 'idle' | 'warning' | 'bad';

const tones: Record<string, Tone> = {
  Running: 'good', Stopped: 'idle', Paused: 'idle', Maintenance: 'idle',
  Starting: 'busy', Stopping: 'busy', Terminating: 'busy', Migrating: 'busy', Provisioning: 'busy',
  WaitingForVolumeBinding: 'busy', WaitingForReceiver: 'busy',
  CrashLoopBackOff: 'bad', ErrorUnschedulable: 'bad', DataVolumeError: 'bad', ErrorPvcNotFound: 'bad',
  ErrImagePull: 'bad', ImagePullBackOff: 'bad', Unknown: 'warning',
};

// The status of a VMI without a VM is its phase.
export function statusOf(vm: VM | undefined, vmi: VMI | undefined): string {
  if (vm) return vm.status?.printableStatus ?? '';
  return vmi?.status?.phase ?? '';
}

export function toneOf(status: string): Tone {
  return tones[status] ?? (status === 'Failed' ? 'bad' : status === 'Succeeded' ? 'idle' : 'busy');
}

export interface Wait {
  condition: string;
  reason: string;
  message: string;
  severity: 'info' | 'warning' | 'danger';
}

interface Sign {
  type: string;
  status: string;
  severity: Wait['severity'];
}

// The conditions that say what a machine waits for, the most specific first. Ready repeats others, so it is the last.
const signs: readonly Sign[] = [
  { type: 'Failure', status: 'True', severity: 'danger' },
  { type: 'drydock.dev/Maintenance', status: 'True', severity: 'info' },
  { type: 'DataVolumesReady', status: 'False', severity: 'info' },
  { type: 'PodScheduled', status: 'False', severity: 'warning' },
  { type: 'Synchronized', status: 'False', severity: 'warning' },
  { type: 'Paused', status: 'True', severity: 'info' },
  { type: 'MigrationRequired', status: 'True', severity: 'info' },
  { type: 'drydock.dev/MigrationProgress', status: 'True', severity: 'info' },
  { type: 'Ready', status: 'False', severity: 'info' },
];

// Reasons of Ready that say only that nothing runs.
const plain = new Set(['VMINotExists', 'PodNotExists', 'GuestNotRunning', 'PodTerminating']);

function wait(c: Condition, severity: Wait['severity']): Wait {
  return { condition: c.type, reason: c.reason ?? '', message: c.message ?? c.reason ?? '', severity };
}

// A message occurs once, under its most specific condition.
export function waits(vm: VM | undefined, vmi: VMI | undefined): Wait[] {
  const list: Wait[] = [];
  for (const sign of signs) {
    for (const of of [vm, vmi]) {
      const c = condition(of, sign.type);
      if (c?.status !== sign.status || (c.message ?? '') === '') continue;
      if (sign.type === 'Ready' && (list.length > 0 || plain.has(c.reason ?? ''))) continue;
      if (!list.some((w) => w.message === c.message)) list.push(wait(c, sign.severity));
    }
  }
  return list;
}

export function cpus(spec: MachineSpec | undefined): number {
  const cpu = spec?.domain?.cpu;
  const count = (cpu?.sockets ?? 1) * (cpu?.cores ?? 1) * (cpu?.threads ?? 1);
  return Math.max(count, 1);
}

export function currentCPUs(vm: VM | undefined, vmi: VMI | undefined): number | undefined {
  const now = vmi?.status?.currentCPUTopology;
  if (now && !isFinal(vmi)) return (now.sockets ?? 1) * (now.cores ?? 1) * (now.threads ?? 1);
  const spec = vmi && !isFinal(vmi) ? vmi.spec : vm?.spec.template?.spec;
  if (!spec?.domain?.cpu && vm?.spec.instancetype) return undefined;
  return cpus(spec);
}

export function currentMemory(vm: VM | undefined, vmi: VMI | undefined): string | undefined {
  const live = isFinal(vmi) ? undefined : vmi;
  const spec = live ? live.spec : vm?.spec.template?.spec;
  return (
    live?.status?.memory?.guestCurrent ??
    spec?.domain?.memory?.guest ??
    spec?.domain?.resources?.requests?.memory
  );
}

export function addresses(vmi: VMI | undefined): string[] {
  if (isFinal(vmi)) return [];
  const all = (vmi?.status?.interfaces ?? []).flatMap((i) => i.ipAddresses ?? (i.ipAddress ? [i.ipAddress] : []));
  return [...new Set(all)];
}

export function bindingOf(i: Interface): string {
  if (i.masquerade) return 'masquerade';
  if (i.bridge) return 'bridge';
  return i.sriov ? 'sriov' : '';
}
