// The import of an image into a new DataVolume: its form, its manifest, and the server's faults at the form's fields.
import type { Failure } from '../kube/failure';
import { parseQuantity } from '../kube/quantity';

// The spec of a DataVolume that gets the image of an address.
export function importSpec(url: string, size: string, storageClass: string): Record<string, unknown> {
  const address = url.trim();
  const source = /^(docker|oci-archive):/.test(address) ? { registry: { url: address } } : { http: { url: address } };
  const storage: Record<string, unknown> = { resources: { requests: { storage: size.trim() } } };
  if (storageClass !== '') storage.storageClassName = storageClass;
  return { source, storage };
}

export interface ImportForm {
  name: string;
  namespace: string;
  url: string;
  size: string;
  storageClass: string;
}

export type ImportField = keyof ImportForm;

export interface ImportFault {
  // undefined: no field of the form is responsible
  field: ImportField | undefined;
  message: string;
}

export function emptyImport(namespace: string): ImportForm {
  return { name: '', namespace, url: '', size: '10Gi', storageClass: '' };
}

export interface ImportManifest {
  apiVersion: string;
  kind: string;
  metadata: { name: string; namespace: string };
  spec: Record<string, unknown>;
}

export function importOf(form: ImportForm): ImportManifest {
  return {
    apiVersion: 'cdi.kubevirt.io/v1beta1',
    kind: 'DataVolume',
    metadata: { name: form.name.trim(), namespace: form.namespace },
    spec: importSpec(form.url, form.size, form.storageClass),
  };
}

const places: readonly [RegExp, ImportField][] = [
  [/^metadata\.(name|generateName)\b/, 'name'],
  [/^metadata\.namespace\b/, 'namespace'],
  [/^spec\.source\b/, 'url'],
  [/^spec\.(storage|pvc)\.storageClassName\b/, 'storageClass'],
  [/^spec\.(storage|pvc)\b/, 'size'],
];

export function importField(path: string): ImportField | undefined {
  return places.find(([pattern]) => pattern.test(path))?.[1];
}

function told(failure: Failure): ImportFault[] {
  // A name that is taken has no cause.
  if (failure.reason === 'AlreadyExists') return [{ field: 'name', message: failure.message }];
  if (failure.causes.length === 0) return [{ field: undefined, message: failure.message }];
  return failure.causes.map((cause) => ({ field: importField(cause.field ?? ''), message: cause.message ?? failure.message }));
}

export type ImportGap = 'noName' | 'noNamespace' | 'noAmount';

const standInName = 'drydock-web-checks-the-rest';

// importFaults asks dryRun, which resolves to undefined for a manifest without faults. A text that the server can't even read
// hides all other faults from it, so it is asked with another one in its place.
export async function importFaults(
  form: ImportForm,
  say: (gap: ImportGap) => string,
  dryRun: (manifest: ImportManifest) => Promise<Failure | undefined>,
): Promise<ImportFault[]> {
  const own: ImportFault[] = [];
  let rest = form;
  if (form.name.trim() === '') {
    own.push({ field: 'name', message: say('noName') });
    rest = { ...rest, name: standInName };
  }
  if (parseQuantity(form.size.trim()) === undefined) {
    own.push({ field: 'size', message: say('noAmount') });
    rest = { ...rest, size: '1Gi' };
  }
  if (form.namespace === '') return [...own, { field: 'namespace', message: say('noNamespace') }];
  const failure = await dryRun(importOf(rest));
  const faults = failure ? told(failure) : [];
  // A bad name hides the faults of the later stages.
  if (!faults.some((f) => f.field === 'name') || rest.name === standInName) return [...own, ...faults];
  const more = await dryRun(importOf({ ...rest, name: standInName }));
  const others = (more ? told(more) : []).filter((f) => !faults.some((known) => known.field === f.field && known.message === f.message));
  return [...own, ...faults, ...others];
}
