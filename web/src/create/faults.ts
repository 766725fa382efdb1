// The server's faults of a manifest, at the fields of the form.
import type { Failure } from '../kube/failure';
import type { DiskSource, Field, Form, Manifest } from './form';

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

// A server that stops at the first stage with a fault is asked again without that fault, so that those of the next
// stage are known, too. The values are valid and change nothing else.
const substitutes: readonly { fields: readonly Field[]; mend: (manifest: Manifest) => Manifest }[] = [
  {
    fields: ['name'],
    mend: (m) => ({ ...m, metadata: { ...m.metadata, name: 'drydock-web-checks-the-rest' } }),
  },
];

// next returns a manifest without the given faults that can be mended, undefined if that would tell no more.
export function withoutFaults(manifest: Manifest, faults: readonly Fault[]): Manifest | undefined {
  let mended = manifest;
  for (const { fields, mend } of substitutes) {
    if (faults.some((f) => f.field !== undefined && fields.includes(f.field))) mended = mend(mended);
  }
  return mended === manifest ? undefined : mended;
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
  manifest: Manifest,
  form: Form,
  dryRun: (manifest: Manifest) => Promise<Failure | undefined>,
): Promise<Fault[]> {
  const failure = await dryRun(manifest);
  if (!failure) return [];
  const faults = faultsOf(failure, form);
  const rest = withoutFaults(manifest, faults);
  if (!rest) return faults;
  const more = await dryRun(rest);
  return more ? merge(faults, faultsOf(more, form)) : faults;
}
