// The clone of a machine, or of a snapshot, and how far it is.
import type { Clone } from '../kube/types';
import { condition, type Tone } from './state';

export interface CloneSource {
  kind: 'VirtualMachine' | 'VirtualMachineSnapshot';
  name: string;
}

const groups = { VirtualMachine: 'kubevirt.io', VirtualMachineSnapshot: 'snapshot.kubevirt.io' } as const;

export function cloneName(source: string): string {
  return `${source.slice(0, 50)}-clone`;
}

// Names of clones and of the machines that they make are apart: the second clone to a name that is free again needs another.
export function cloneOf(source: CloneSource, target: string): unknown {
  return {
    apiVersion: 'clone.kubevirt.io/v1beta1',
    kind: 'VirtualMachineClone',
    metadata: { generateName: `${target.slice(0, 50)}-` },
    spec: {
      source: { apiGroup: groups[source.kind], kind: source.kind, name: source.name },
      target: { apiGroup: 'kubevirt.io', kind: 'VirtualMachine', name: target },
    },
  };
}

export type CloneState = 'done' | 'failed' | 'goes';

export function cloneState(clone: Clone): CloneState {
  if (clone.status?.phase === 'Succeeded') return 'done';
  return clone.status?.phase === 'Failed' ? 'failed' : 'goes';
}

const tones: Record<CloneState, Tone> = { done: 'good', failed: 'bad', goes: 'busy' };

export function cloneTone(clone: Clone): Tone {
  return tones[cloneState(clone)];
}

// cloneSays returns the sentence of the condition that says how far the clone is; '' for none.
export function cloneSays(clone: Clone): string {
  const progress = condition(clone, 'Progressing');
  const ready = condition(clone, 'Ready');
  const first = cloneState(clone) === 'goes' ? progress : ready;
  return [first, progress, ready].find((c) => (c?.message ?? '') !== '')?.message ?? '';
}

// isOf reports whether a clone is of a machine: of itself, or of one of its snapshots.
export function isOf(clone: Clone, machine: string, snapshots: ReadonlySet<string>): boolean {
  const source = clone.spec.source;
  if (source?.kind === 'VirtualMachine') return source.name === machine;
  return source?.kind === 'VirtualMachineSnapshot' && snapshots.has(source.name ?? '');
}
