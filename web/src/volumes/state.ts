// The state of DataVolumes, DataSources and claims: from their own statuses alone.
import type { Claim, DataSource, DataVolume, OwnerReference } from '../kube/types';
import { condition, type Tone } from '../machine/state';

const busyPhases = new Set(['WaitForFirstConsumer', 'UploadReady', 'Pending', 'PVCBound', 'Paused', '']);

export function volumeTone(phase: string): Tone {
  if (phase === 'Succeeded') return 'good';
  if (phase === 'Failed') return 'bad';
  return busyPhases.has(phase) ? 'idle' : 'busy';
}

// volumePercent returns how much is filled, as far as that is known.
export function volumePercent(volume: DataVolume): number | undefined {
  const found = /^(\d{1,3}(?:\.\d+)?)%$/.exec(volume.status?.progress ?? '');
  return found ? Math.min(100, Number(found[1])) : undefined;
}

// volumeSays returns the reason for which a volume waits or its last try failed; '' when it is complete.
export function volumeSays(volume: DataVolume): string {
  if (volume.status?.phase === 'Succeeded') return '';
  const [bound, running, ready] = ['Bound', 'Running', 'Ready'].map((type) => condition(volume, type));
  const first = bound?.status === 'False' ? [bound, running, ready] : [running, ready, bound];
  return first.find((c) => (c?.message ?? '') !== '')?.message ?? '';
}

export type SourceKind = 'http' | 'registry' | 'upload' | 'blank' | 'pvc' | 'snapshot' | 'ref' | 'other';

// sourceOf returns where a volume's content comes from, and its address or name.
export function sourceOf(volume: DataVolume): { kind: SourceKind; of: string } {
  const { source, sourceRef } = volume.spec ?? {};
  if (sourceRef) return { kind: 'ref', of: placeOf(sourceRef) };
  if (source?.http) return { kind: 'http', of: source.http.url ?? '' };
  if (source?.registry) return { kind: 'registry', of: source.registry.url ?? source.registry.imageStream ?? '' };
  if (source?.pvc) return { kind: 'pvc', of: placeOf(source.pvc) };
  if (source?.snapshot) return { kind: 'snapshot', of: placeOf(source.snapshot) };
  if (source?.upload) return { kind: 'upload', of: '' };
  if (source?.blank) return { kind: 'blank', of: '' };
  return { kind: 'other', of: '' };
}

function placeOf(of: { namespace?: string; name?: string }): string {
  return of.namespace ? `${of.namespace}/${of.name ?? ''}` : (of.name ?? '');
}

export function sizeOf(volume: DataVolume): string | undefined {
  const spec = volume.spec?.storage ?? volume.spec?.pvc;
  return spec?.resources?.requests?.storage;
}

// refersTo returns the claim, snapshot or DataSource that a DataSource stands for.
export function refersTo(source: DataSource): { kind: 'pvc' | 'snapshot' | 'dataSource' | undefined; of: string } {
  const of = source.spec?.source;
  if (of?.pvc) return { kind: 'pvc', of: placeOf(of.pvc) };
  if (of?.snapshot) return { kind: 'snapshot', of: placeOf(of.snapshot) };
  if (of?.dataSource) return { kind: 'dataSource', of: placeOf(of.dataSource) };
  return { kind: undefined, of: '' };
}

// ownerOf returns the machine or the DataVolume that a volume is deleted with.
export function ownerOf(of: DataVolume | Claim): OwnerReference | undefined {
  return of.metadata.ownerReferences?.find((o) => o.kind === 'VirtualMachine' || o.kind === 'DataVolume');
}

interface Named {
  metadata: { name: string; namespace?: string };
}

// found returns the objects in whose name, namespace or other texts all words occur, sorted.
export function found<T extends Named>(items: Iterable<T>, words: string, texts: (of: T) => readonly string[] = () => []): T[] {
  const wanted = words.toLowerCase().split(/\s+/).filter((w) => w !== '');
  return [...items]
    .filter((of) => {
      const all = [of.metadata.name, of.metadata.namespace ?? '', ...texts(of)].map((t) => t.toLowerCase());
      return wanted.every((word) => all.some((t) => t.includes(word)));
    })
    .sort((a, b) => a.metadata.name.localeCompare(b.metadata.name) || (a.metadata.namespace ?? '').localeCompare(b.metadata.namespace ?? ''));
}
