// Rows of the list of machines: VMs, and VMIs that belong to no VM.
import { keyOf } from '../kube/items';
import type { VM, VMI } from '../kube/types';
import { addresses, currentCPUs, currentMemory, isFinal, statusOf, toneOf, waits, type Tone } from '../machine/state';

export interface Row {
  key: string;
  namespace: string;
  name: string;
  status: string;
  tone: Tone;
  // The sentence of the condition that says what the machine waits for; '' for none.
  sentence: string;
  node: string;
  addresses: string[];
  cpus: number | undefined;
  memory: string | undefined;
  instanceType: string;
  restartRequired: boolean;
  vm: VM | undefined;
  vmi: VMI | undefined;
}

export function rowOf(vm: VM | undefined, vmi: VMI | undefined): Row | undefined {
  const of = vm ?? vmi;
  if (!of) return undefined;
  const status = statusOf(vm, vmi);
  return {
    key: keyOf(of),
    namespace: of.metadata.namespace ?? '',
    name: of.metadata.name,
    status,
    tone: toneOf(status),
    sentence: waits(vm, vmi)[0]?.message ?? '',
    node: isFinal(vmi) ? '' : (vmi?.status?.nodeName ?? ''),
    addresses: addresses(vmi),
    cpus: currentCPUs(vm, vmi),
    memory: currentMemory(vm, vmi),
    instanceType: vm?.spec.instancetype?.name ?? '',
    restartRequired: vm?.status?.conditions?.some((c) => c.type === 'RestartRequired' && c.status === 'True') ?? false,
    vm,
    vmi,
  };
}

function belongsToVM(vmi: VMI): boolean {
  return vmi.metadata.ownerReferences?.some((o) => o.kind === 'VirtualMachine') ?? false;
}

// Rows are kept while their objects are the same, so that one change in 5,000 machines makes one row.
export class Rows {
  private known = new Map<string, Row>();

  of(vms: ReadonlyMap<string, VM>, vmis: ReadonlyMap<string, VMI>): Row[] {
    const next = new Map<string, Row>();
    const add = (key: string, vm: VM | undefined, vmi: VMI | undefined): void => {
      const old = this.known.get(key);
      const row = old && old.vm === vm && old.vmi === vmi ? old : rowOf(vm, vmi);
      if (row) next.set(key, row);
    };
    for (const [key, vm] of vms) {
      const vmi = vmis.get(key);
      add(key, vm, vmi && belongsToVM(vmi) ? vmi : undefined);
    }
    for (const [key, vmi] of vmis) if (!vms.has(key) && !belongsToVM(vmi)) add(key, undefined, vmi);
    this.known = next;
    return [...next.values()];
  }
}

export const columns = ['name', 'namespace', 'status', 'node', 'address', 'cpus', 'memory'] as const;
export type Column = (typeof columns)[number];

export interface View {
  // Each word must occur in the name, namespace, status, node or an address.
  words: string;
  status: string;
  column: Column;
  descending: boolean;
}

function text(row: Row, column: Column): string {
  switch (column) {
    case 'name': return row.name;
    case 'namespace': return row.namespace;
    case 'status': return row.status;
    case 'node': return row.node;
    case 'address': return row.addresses[0] ?? '';
    case 'cpus': return String(row.cpus ?? 0).padStart(6, '0');
    case 'memory': return row.memory ?? '';
  }
}

const collator = new Intl.Collator('en', { numeric: true });

export function matches(row: Row, words: readonly string[], status: string): boolean {
  if (status !== '' && row.status !== status) return false;
  const all = [row.name, row.namespace, row.status, row.node, ...row.addresses].map((t) => t.toLowerCase());
  return words.every((word) => all.some((t) => t.includes(word)));
}

export function arrange(rows: readonly Row[], view: View, memory: (text: string | undefined) => number | undefined): Row[] {
  const words = view.words.toLowerCase().split(/\s+/).filter((w) => w !== '');
  const kept = rows.filter((row) => matches(row, words, view.status));
  const direction = view.descending ? -1 : 1;
  return kept.sort((a, b) => {
    const first = view.column === 'memory' ? (memory(a.memory) ?? 0) - (memory(b.memory) ?? 0)
      : collator.compare(text(a, view.column), text(b, view.column));
    return direction * first || collator.compare(a.name, b.name) || collator.compare(a.namespace, b.namespace);
  });
}

export function statuses(rows: readonly Row[]): [string, number][] {
  const counts = new Map<string, number>();
  for (const row of rows) counts.set(row.status, (counts.get(row.status) ?? 0) + 1);
  return [...counts].sort((a, b) => collator.compare(a[0], b[0]));
}
