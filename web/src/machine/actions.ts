// The actions on a machine: which are possible in its state, and the right that each needs.
import type { Wish } from '../kube/rights';
import { subresourceGroup } from '../kube/paths';
import type { Migration, VM, VMI } from '../kube/types';
import { isFinal, isOver, isTrue } from './state';

export const actionNames = [
  'start', 'stop', 'restart', 'pause', 'unpause', 'migrate', 'cancelMigration', 'takeMaintenance', 'releaseMaintenance', 'clone', 'delete',
] as const;
export type ActionName = (typeof actionNames)[number];

// Actions that need no more than the machine.
export type PlainAction = Exclude<ActionName, 'clone'>;

// Why an action is not possible now; the page has the sentence of each.
export type Obstacle =
  | 'runs' | 'doesNotRun' | 'isStopped' | 'isPaused' | 'isNotPaused' | 'migrates' | 'doesNotMigrate' | 'inMaintenance'
  | 'notInMaintenance' | 'notMigratable' | 'noVM' | 'isDeleted';

export interface Subject {
  vm: VM | undefined;
  vmi: VMI | undefined;
  migration?: Migration;
}

function active(vmi: VMI | undefined): boolean {
  return vmi !== undefined && !isFinal(vmi);
}

function runs(vmi: VMI | undefined): boolean {
  return vmi?.status?.phase === 'Running';
}

function wantsToRun(vm: VM): boolean {
  const strategy = vm.spec.runStrategy ?? (vm.spec.running ? 'Always' : 'Halted');
  return strategy !== 'Halted' && strategy !== 'Manual';
}

const inMaintenance = (vm: VM | undefined): boolean => vm?.metadata.labels?.['kubevirt.io/maintenance'] !== undefined;
const migrating = (m: Migration | undefined): boolean => m !== undefined && !isOver(m);

const tests: Record<ActionName, (s: Subject) => Obstacle | undefined> = {
  start: ({ vm, vmi }) => {
    if (!vm) return 'noVM';
    if (inMaintenance(vm)) return 'inMaintenance';
    return active(vmi) ? 'runs' : undefined;
  },
  stop: ({ vm, vmi }) => {
    if (!vm) return 'noVM';
    return active(vmi) || wantsToRun(vm) ? undefined : 'isStopped';
  },
  restart: ({ vm, vmi }) => {
    if (!vm) return 'noVM';
    return active(vmi) ? undefined : 'doesNotRun';
  },
  pause: ({ vmi, migration }) => {
    if (!runs(vmi)) return 'doesNotRun';
    if (isTrue(vmi, 'Paused')) return 'isPaused';
    return migrating(migration) ? 'migrates' : undefined;
  },
  unpause: ({ vmi }) => {
    if (!runs(vmi)) return 'doesNotRun';
    return isTrue(vmi, 'Paused') ? undefined : 'isNotPaused';
  },
  migrate: ({ vmi, migration }) => {
    if (!runs(vmi)) return 'doesNotRun';
    if (migrating(migration)) return 'migrates';
    return vmi?.status?.conditions?.some((c) => c.type === 'LiveMigratable' && c.status === 'False') ? 'notMigratable' : undefined;
  },
  cancelMigration: ({ migration }) => {
    if (!migrating(migration)) return 'doesNotMigrate';
    return migration?.metadata.deletionTimestamp ? 'isDeleted' : undefined;
  },
  takeMaintenance: ({ vm }) => {
    if (!vm) return 'noVM';
    return inMaintenance(vm) ? 'inMaintenance' : undefined;
  },
  releaseMaintenance: ({ vm }) => (inMaintenance(vm) ? undefined : 'notInMaintenance'),
  clone: ({ vm }) => (vm ? undefined : 'noVM'),
  delete: ({ vm, vmi }) => ((vm ?? vmi)?.metadata.deletionTimestamp ? 'isDeleted' : undefined),
};

export function obstacle(action: ActionName, subject: Subject): Obstacle | undefined {
  const subjectDeleted = (subject.vm ?? subject.vmi)?.metadata.deletionTimestamp !== undefined;
  if (subjectDeleted && action !== 'cancelMigration' && action !== 'releaseMaintenance') return 'isDeleted';
  return tests[action](subject);
}

const onVM = (verb: string, sub: string): Wish => ({ verb, group: subresourceGroup, resource: `virtualmachines/${sub}` });
const onVMI = (verb: string, sub: string): Wish => ({ verb, group: subresourceGroup, resource: `virtualmachineinstances/${sub}` });

export function rightFor(action: ActionName, lone: boolean): Wish {
  switch (action) {
    case 'start':
    case 'stop':
    case 'restart':
      return onVM('update', action);
    case 'migrate':
      return lone
        ? { verb: 'create', group: 'kubevirt.io', resource: 'virtualmachineinstancemigrations' }
        : onVM('update', 'migrate');
    case 'pause':
    case 'unpause':
      return onVMI('update', action);
    case 'cancelMigration':
      return { verb: 'delete', group: 'kubevirt.io', resource: 'virtualmachineinstancemigrations' };
    case 'takeMaintenance':
      return onVM('create', 'maintenance');
    case 'releaseMaintenance':
      return onVM('delete', 'maintenance');
    case 'clone':
      return { verb: 'create', group: 'clone.kubevirt.io', resource: 'virtualmachineclones' };
    case 'delete':
      return { verb: 'delete', group: 'kubevirt.io', resource: lone ? 'virtualmachineinstances' : 'virtualmachines' };
  }
}
