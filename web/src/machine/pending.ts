// Changes of a VM that its guest does not have yet, as `virtctl pending` shows them. The paths are read from the
// messages of conditions; a message that can't be parsed is shown unchanged.
import type { Condition, MachineSpec, Migration, VM, VMI } from '../kube/types';
import { parseQuantity } from '../kube/quantity';
import { condition, isFinal, isOver } from './state';

export type Effect = 'live' | 'migration' | 'restart';

// The kinds of waits; the page has the sentence of each.
export type Waiting =
  | { kind: 'says'; message: string }
  | { kind: 'restart'; message: string }
  | { kind: 'migration'; message: string; by?: string; phase?: string; immovable?: string }
  | { kind: 'place'; message: string }
  | { kind: 'unplug' }
  | { kind: 'plug' }
  | { kind: 'volume'; phase: string; message: string }
  | { kind: 'afterMigration'; by: string; phase: string }
  | { kind: 'node'; message: string };

export interface Change {
  path: string;
  effect: Effect;
  waitsFor: Waiting;
}

const template = 'spec.template.spec';
export const socketsPath = `${template}.domain.cpu.sockets`;
export const memoryPath = `${template}.domain.memory.guest`;
const interfacePath = (name: string): string => `${template}.domain.devices.interfaces[${name}]`;
const networkPath = (name: string): string => `${template}.networks[${name}].multus.networkName`;

const restartBegins = 'these changes take effect when the VM is restarted: ';
const machineWhy = "it can't be changed while the guest runs";

export interface Restart {
  path: string;
  why: string;
}

export function readRestart(message: string): Restart[] {
  if (!message.startsWith(restartBegins)) return [{ path: '', why: message }];
  const list: Restart[] = [];
  const rest: string[] = [];
  for (const sentence of message.slice(restartBegins.length).split('; ')) {
    const at = sentence.indexOf(', because ');
    const paths = at < 0 ? sentence : sentence.slice(0, at);
    if (at < 0 && paths.replaceAll(', ', '').includes(' ')) {
      rest.push(sentence);
      continue;
    }
    const why = at < 0 ? '' : sentence.slice(at + ', because '.length);
    for (const path of paths.split(', ')) list.push({ path, why });
  }
  return list.map((r) => (r.why === '' ? { ...r, why: [machineWhy, ...rest].join('; ') } : r));
}

interface Need {
  path: string;
  what: string;
  // no migration makes the change
  futile: boolean;
  // the pod must be larger
  room: boolean;
}

const clauses: readonly [RegExp, (name: string) => string][] = [
  [/^interface (\S+) is to be plugged/, interfacePath],
  [/^interface (\S+) is to be unplugged/, (name) => `${interfacePath(name)}.state`],
  [/^interface (\S+) is to be on network /, networkPath],
  [/^the launcher pod is to (lose) /, () => `${template}.domain.devices.interfaces`],
];

function pathOf(clause: string): string {
  for (const [begins, path] of clauses) {
    const found = begins.exec(clause);
    if (found) return path(found[1] ?? '');
  }
  return '';
}

export function readNeeds(message: string): { needs: Need[]; immovable: string } {
  const [before = '', immovable = ''] = message.split('the guest cannot be migrated: ', 2);
  const needs: Need[] = [];
  for (const clause of before.replace(/; $/, '').split('; ')) {
    const room = clause.startsWith('the launcher pod is to have ');
    const path = pathOf(clause);
    const last = needs.at(-1);
    if (path === '' && !room && last) {
      last.what += `; ${clause}`; // the previous clause contains a semicolon
      continue;
    }
    needs.push({ path, what: clause, futile: clause.includes(', which no migration brings: '), room });
  }
  return { needs, immovable };
}

export interface Facts {
  vm: VM;
  vmi: VMI | undefined;
  migrations: readonly Migration[];
}

function underWay(migrations: readonly Migration[]): Migration | undefined {
  return migrations.find((m) => !isOver(m));
}

function move(facts: Facts, message: string, immovable = ''): Waiting {
  const m = underWay(facts.migrations);
  if (immovable !== '') return { kind: 'migration', message, immovable };
  return { kind: 'migration', message, by: m?.metadata.name, phase: m && (m.status?.phase ?? 'Pending') };
}

function needed(facts: Facts, vmi: VMI): { changes: Change[]; noRoom?: Change } {
  const c = condition(vmi, 'MigrationRequired');
  if (!c || c.status === 'Unknown') return { changes: [] };
  const { needs, immovable } = readNeeds(c.message ?? '');
  const changes: Change[] = [];
  let noRoom: Change | undefined;
  for (const need of needs) {
    const change = needChange(facts, c, need, immovable);
    if (need.room) noRoom = change;
    else changes.push(change);
  }
  return { changes, noRoom };
}

function needChange(facts: Facts, c: Condition, need: Need, immovable: string): Change {
  if (need.futile) return { path: need.path, effect: 'live', waitsFor: { kind: 'says', message: need.what } };
  if (c.status === 'True') return { path: need.path, effect: 'migration', waitsFor: move(facts, need.what, immovable) };
  return { path: need.path, effect: 'live', waitsFor: { kind: 'place', message: need.what } };
}

function resources(vmi: VMI, noRoom: Change | undefined): Change[] {
  const list: Change[] = [];
  let rest = noRoom;
  for (const [type, path] of [['HotVCPUChange', socketsPath], ['HotMemoryChange', memoryPath]] as const) {
    const c = condition(vmi, type);
    if (c?.status !== 'True') continue;
    if (rest) list.push({ ...rest, path });
    else list.push({ path, effect: 'live', waitsFor: { kind: 'says', message: c.message ?? c.reason ?? '' } });
    rest = undefined;
  }
  return rest ? [...list, rest] : list;
}

function plugging(vmi: VMI): Change[] {
  if (vmi.status?.phase !== 'Running') return [];
  const list: Change[] = [];
  for (const i of vmi.spec.domain?.devices?.interfaces ?? []) {
    const absent = i.state === 'absent';
    const there = vmi.status.interfaces?.some((s) => s.name === i.name && (s.infoSource ?? '').startsWith('domain')) ?? false;
    if (absent !== there) continue;
    if (absent) list.push({ path: `${interfacePath(i.name)}.state`, effect: 'live', waitsFor: { kind: 'unplug' } });
    else list.push({ path: interfacePath(i.name), effect: 'live', waitsFor: { kind: 'plug' } });
  }
  return list;
}

function volumes(facts: Facts, vmi: VMI): Change[] {
  const list: Change[] = (vmi.status?.volumeStatus ?? [])
    .filter((s) => s.hotplugVolume && s.phase !== 'Ready')
    .map((s) => ({
      path: `${template}.volumes[${s.name}]`,
      effect: 'live',
      waitsFor: { kind: 'volume', phase: s.phase ?? 'Pending', message: s.message ?? s.reason ?? '' },
    }));
  const c = condition(vmi, 'VolumesChange');
  if (c?.status === 'True') {
    list.push({ path: `${template}.volumes`, effect: 'migration', waitsFor: move(facts, c.message ?? '') });
  }
  return list;
}

function resourceDifferences(running: MachineSpec, wanted: MachineSpec): string[] {
  const paths: string[] = [];
  const sockets = (s: MachineSpec): number => Math.max(s.domain?.cpu?.sockets ?? 1, 1);
  if (sockets(running) !== sockets(wanted)) paths.push(socketsPath);
  const memory = wanted.domain?.memory?.guest;
  if (memory && parseQuantity(memory) !== parseQuantity(running.domain?.memory?.guest)) paths.push(memoryPath);
  return paths;
}

function networkDifferences(running: MachineSpec, wanted: MachineSpec): string[] {
  const paths: string[] = [];
  for (const to of wanted.domain?.devices?.interfaces ?? []) {
    const is = running.domain?.devices?.interfaces?.find((i) => i.name === to.name);
    if (!is) paths.push(interfacePath(to.name));
    else if ((is.state ?? 'up') !== (to.state ?? 'up')) paths.push(`${interfacePath(to.name)}.state`);
  }
  for (const to of wanted.networks ?? []) {
    const is = running.networks?.find((n) => n.name === to.name);
    if (is?.multus && to.multus && is.multus.networkName !== to.multus.networkName) paths.push(networkPath(to.name));
  }
  return paths;
}

// differences returns the live fields in which a VMI differs from its VM's template.
export function differences(running: MachineSpec, wanted: MachineSpec): string[] {
  return [...resourceDifferences(running, wanted), ...networkDifferences(running, wanted)];
}

function held(facts: Facts, vmi: VMI, restarts: readonly Restart[]): Change[] {
  const m = underWay(facts.migrations);
  const wanted = facts.vm.spec.template?.spec;
  if (!m || !wanted) return [];
  return differences(vmi.spec, wanted)
    .filter((path) => !restarts.some((r) => r.path === path))
    .map((path) => ({
      path,
      effect: 'live',
      waitsFor: { kind: 'afterMigration', by: m.metadata.name, phase: m.status?.phase ?? 'Pending' },
    }));
}

function unsynchronized(vmi: VMI, pending: boolean): Change[] {
  const c = condition(vmi, 'Synchronized');
  if (!pending || c?.status !== 'False') return [];
  return [{ path: '', effect: 'live', waitsFor: { kind: 'node', message: c.message ?? c.reason ?? '' } }];
}

// pendingChanges lists live changes first, restarts last. Each path occurs once.
export function pendingChanges(facts: Facts): Change[] {
  const vmi = facts.vmi;
  if (!vmi || isFinal(vmi)) return [];
  const c = condition(facts.vm, 'RestartRequired');
  const restarts = c?.status === 'True' ? readRestart(c.message ?? '') : [];
  const { changes, noRoom } = needed(facts, vmi);
  const list: Change[] = [];
  const add = (more: Change[]): void => {
    for (const m of more) if (m.path === '' || !list.some((l) => l.path === m.path)) list.push(m);
  };
  add(resources(vmi, noRoom));
  add(changes);
  add(plugging(vmi));
  add(volumes(facts, vmi));
  add(held(facts, vmi, restarts));
  add(unsynchronized(vmi, list.length > 0));
  const order: Record<Effect, number> = { live: 0, migration: 1, restart: 2 };
  list.sort((a, b) => order[a.effect] - order[b.effect]);
  return [...list, ...restarts.map((r): Change => ({ path: r.path, effect: 'restart', waitsFor: { kind: 'restart', message: r.why } }))];
}
