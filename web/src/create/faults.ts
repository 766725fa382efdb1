// The server's faults of a manifest, at the fields of the form.
import type { Failure } from '../kube/failure';
import { parseQuantity } from '../kube/quantity';
import { manifestOf, type DiskSource, type Field, type Form, type Manifest } from './form';

export interface Fault {
  // undefined: no field of the form is responsible
  field: Field | undefined;
  path: string;
  message: string;
}

const rootSource: Record<DiskSource, Field> = { containerDisk: 'image', url: 'url', claim: 'claim', dataVolume: 'claim' };

const places: readonly [RegExp, Field | 'root' | 'init'][] = [
  [/^metadata\.(name|generateName)\b/, 'name'],
  [/^metadata\.namespace\b/, 'namespace'],
  [/^spec\.(runStrategy|running)\b/, 'start'],
  [/^spec\.instancetype\b/, 'instanceType'],
  [/^spec\.preference\b/, 'preference'],
  [/^spec\.dataVolumeTemplates\[\d+\]\.metadata\.name\b/, 'name'],
  [/^spec\.dataVolumeTemplates\[\d+\]\.spec\.source\b/, 'url'],
  [/^spec\.dataVolumeTemplates\[\d+\]\.spec\.(storage|pvc)\.storageClassName\b/, 'storageClass'],
  [/^spec\.dataVolumeTemplates\[\d+\]\.spec\.(storage|pvc)\b/, 'size'],
  [/^spec\.dataVolumeTemplates\b/, 'url'],
  [/^spec\.template\.spec\.domain\.(memory\b|resources\.(requests|limits)\.memory\b)/, 'memory'],
  [/^spec\.template\.spec\.domain\.(cpu\b|resources\.(requests|limits)\.cpu\b)/, 'cpus'],
  [/^spec\.template\.spec\.(volumes|domain\.devices\.disks)\[0\]/, 'root'],
  [/^spec\.template\.spec\.(volumes|domain\.devices\.disks)\[1\]/, 'init'],
];

// fieldOf returns the field that an element of the manifest comes from.
export function fieldOf(path: string, form: Form): Field | undefined {
  const found = places.find(([pattern]) => pattern.test(path))?.[1];
  switch (found) {
    case undefined: return undefined;
    case 'root': return rootSource[form.source];
    case 'init': return form.userData.trim() === '' ? 'sshKeys' : 'userData';
    case 'instanceType': return form.instanceType === '' ? undefined : 'instanceType';
    case 'preference': return form.preference === '' ? undefined : 'preference';
    case 'cpus':
    case 'memory': return form.instanceType === '' ? found : 'instanceType';
    default: return found;
  }
}

export function faultsOf(failure: Failure, form: Form): Fault[] {
  if (failure.causes.length === 0) return [{ field: undefined, path: '', message: failure.message }];
  return failure.causes.map((cause) => {
    const path = cause.field ?? '';
    return { field: fieldOf(path, form), path, message: cause.message ?? cause.reason ?? failure.message };
  });
}

// Texts that the server can't even decode: it would name no field, and no other fault.
export type Unreadable = 'noName' | 'noNamespace' | 'noNumber' | 'noAmount';

const standInName = 'drydock-web-checks-the-rest';

const readable: readonly { field: Field; matters: (form: Form) => boolean; bad: (text: string) => Unreadable | undefined; standIn: string }[] = [
  { field: 'name', matters: () => true, bad: (text) => (text === '' ? 'noName' : undefined), standIn: standInName },
  { field: 'namespace', matters: () => true, bad: (text) => (text === '' ? 'noNamespace' : undefined), standIn: '' },
  { field: 'cpus', matters: (f) => f.instanceType === '', bad: (text) => (/^\d{1,9}$/.test(text) ? undefined : 'noNumber'), standIn: '1' },
  { field: 'memory', matters: (f) => f.instanceType === '', bad: noAmount, standIn: '1Gi' },
  { field: 'size', matters: (f) => f.source === 'url', bad: noAmount, standIn: '1Gi' },
];

function noAmount(text: string): Unreadable | undefined {
  return parseQuantity(text) === undefined ? 'noAmount' : undefined;
}

// unreadable returns the faults of such texts, and the form with others in their place.
export function unreadable(form: Form, say: (what: Unreadable) => string): { faults: Fault[]; rest: Form } {
  const faults: Fault[] = [];
  let rest = form;
  for (const { field, matters, bad, standIn } of readable) {
    const what = matters(form) ? bad(String(form[field]).trim()) : undefined;
    if (what === undefined) continue;
    faults.push({ field, path: field, message: say(what) });
    rest = { ...rest, [field]: standIn };
  }
  return { faults, rest };
}

// A bad name hides the faults of the later stages, so the server is asked again with a good one.
function withGoodName(manifest: Manifest, faults: readonly Fault[]): Manifest | undefined {
  if (!faults.some((f) => f.field === 'name') || manifest.metadata.name === standInName) return undefined;
  return { ...manifest, metadata: { ...manifest.metadata, name: standInName } };
}

export function merge(first: readonly Fault[], more: readonly Fault[]): Fault[] {
  const all = [...first];
  for (const fault of more) {
    if (!all.some((f) => f.path === fault.path && f.message === fault.message)) all.push(fault);
  }
  return all;
}

// allFaults asks dryRun, which resolves to undefined for a manifest without faults, until it names no further ones.
export async function allFaults(
  form: Form,
  say: (what: Unreadable) => string,
  dryRun: (manifest: Manifest) => Promise<Failure | undefined>,
): Promise<Fault[]> {
  const { faults: own, rest } = unreadable(form, say);
  if (rest.namespace === '') return own;
  const manifest = manifestOf(rest);
  const failure = await dryRun(manifest);
  if (!failure) return own;
  const faults = merge(own, faultsOf(failure, rest));
  const renamed = withGoodName(manifest, faults);
  const more = renamed && (await dryRun(renamed));
  return more ? merge(faults, faultsOf(more, rest)) : faults;
}
