import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Failure } from '../src/kube/failure';
import type { DataVolume } from '../src/kube/types';
import { emptyImport, importFaults, importField, importOf, type ImportForm, type ImportManifest } from '../src/volumes/imports';
import { found, ownerOf, refersTo, sizeOf, sourceOf, volumePercent, volumeSays, volumeTone } from '../src/volumes/state';

const form: ImportForm = { ...emptyImport('ns'), name: 'debian', url: ' https://x/y.qcow2 ' };
const volume = (status: DataVolume['status'], spec: DataVolume['spec'] = {}): DataVolume => ({ metadata: { name: 'v', namespace: 'ns' }, spec, status });
const invalid = (...causes: [string, string][]): Failure =>
  new Failure(422, 'Invalid', 'invalid', causes.map(([field, message]) => ({ field, message })));

test('the form is a DataVolume; an address of a registry is no web address', () => {
  assert.deepEqual(importOf(form), {
    apiVersion: 'cdi.kubevirt.io/v1beta1', kind: 'DataVolume', metadata: { name: 'debian', namespace: 'ns' },
    spec: { source: { http: { url: 'https://x/y.qcow2' } }, storage: { resources: { requests: { storage: '10Gi' } } } },
  });
  const { spec } = importOf({ ...form, url: 'docker://quay.io/x:1', storageClass: 'fast' });
  assert.deepEqual(spec, { source: { registry: { url: 'docker://quay.io/x:1' } }, storage: { resources: { requests: { storage: '10Gi' } }, storageClassName: 'fast' } });
});

test('paths of the manifest lead to the fields', () => {
  assert.deepEqual(
    ['metadata.name', 'spec.source.http.url', 'spec.source', 'spec.storage.resources.requests', 'spec.storage.storageClassName', 'spec.priorityClassName'].map(importField),
    ['name', 'url', 'url', 'size', 'storageClass', undefined],
  );
});

const say = (gap: string): string => gap;

test('what the server can’t read does not hide what it refuses', async () => {
  const asked: ImportManifest[] = [];
  const faults = await importFaults({ ...form, name: ' ', size: 'big', url: 'ftp://x' }, say, (manifest) => {
    asked.push(manifest);
    return Promise.resolve(invalid(['spec.source.http.url', 'bad address']));
  });
  assert.deepEqual(faults, [{ field: 'name', message: 'noName' }, { field: 'size', message: 'noAmount' }, { field: 'url', message: 'bad address' }]);
  assert.equal(asked.length, 1);
  assert.deepEqual(asked[0]?.spec.storage, { resources: { requests: { storage: '1Gi' } } });
});

test('a bad name does not hide the faults of the later stages', async () => {
  const faults = await importFaults({ ...form, name: 'Bad_Name' }, say, (manifest) =>
    Promise.resolve(manifest.metadata.name === 'Bad_Name' ? invalid(['metadata.name', 'lower case']) : invalid(['spec.source.http.url', 'bad address'])));
  assert.deepEqual(faults.map((f) => f.field), ['name', 'url']);
});

test('a name that is taken is a fault of the name, and without a namespace nobody is asked', async () => {
  const taken = await importFaults(form, say, (manifest) =>
    Promise.resolve(manifest.metadata.name === 'debian' ? new Failure(409, 'AlreadyExists', 'exists') : undefined));
  assert.deepEqual(taken, [{ field: 'name', message: 'exists' }]);
  const nowhere = await importFaults({ ...form, namespace: '' }, say, () => Promise.reject(new Error('asked')));
  assert.deepEqual(nowhere, [{ field: 'namespace', message: 'noNamespace' }]);
  assert.deepEqual(await importFaults(form, say, () => Promise.resolve(undefined)), []);
});

test('a volume says what it waits for: its claim first, nothing when it is complete', () => {
  const conditions = [
    { type: 'Bound', status: 'False', message: 'no class' }, { type: 'Running', status: 'False', message: 'no worker yet' }, { type: 'Ready', status: 'False', message: 'failed before' },
  ];
  const bound = conditions.map((c) => (c.type === 'Bound' ? { ...c, status: 'True', message: 'bound' } : c));
  assert.equal(volumeSays(volume({ phase: 'Pending', conditions })), 'no class');
  assert.equal(volumeSays(volume({ phase: 'ImportScheduled', conditions: bound })), 'no worker yet');
  assert.equal(volumeSays(volume({ phase: 'Failed', conditions: bound.map((c) => (c.type === 'Running' ? { ...c, message: '' } : c)) })), 'failed before');
  assert.equal(volumeSays(volume({ phase: 'Succeeded', conditions })), '');
  assert.equal(volumeSays(volume(undefined)), '');
});

test('progress is a percentage, or unknown', () => {
  assert.deepEqual(['45.32%', '100.0%', '7%', '250%', 'N/A', '', '%', 'x5%'].map((progress) => volumePercent(volume({ progress }))), [45.32, 100, 7, 100, undefined, undefined, undefined, undefined]);
  assert.deepEqual(['Succeeded', 'Failed', 'UploadReady', 'ImportInProgress', ''].map(volumeTone), ['good', 'bad', 'idle', 'busy', 'idle']);
});

test('each source has a kind and an address', () => {
  const of = (spec: DataVolume['spec']): string => {
    const { kind, of } = sourceOf(volume({}, spec));
    return `${kind} ${of}`;
  };
  assert.deepEqual([
    of({ source: { http: { url: 'u' } } }), of({ source: { registry: { imageStream: 's' } } }), of({ source: { pvc: { namespace: 'n', name: 'c' } } }),
    of({ source: { snapshot: { name: 'c' } } }), of({ sourceRef: { namespace: 'n', name: 'd' } }), of({ source: { blank: {} } }), of({}), of(undefined),
  ], ['http u', 'registry s', 'pvc n/c', 'snapshot c', 'ref n/d', 'blank ', 'other ', 'other ']);
  assert.equal(sizeOf(volume({}, { pvc: { resources: { requests: { storage: '1Gi' } } } })), '1Gi');
  assert.deepEqual(refersTo({ metadata: { name: 's' }, spec: { source: { snapshot: { name: 'x' } } } }), { kind: 'snapshot', of: 'x' });
  assert.equal(refersTo({ metadata: { name: 's' } }).kind, undefined);
});

test('a volume belongs to a machine or a DataVolume, and to nothing else', () => {
  const owned = (kind: string): DataVolume => ({ metadata: { name: 'v', ownerReferences: [{ kind, name: 'o', uid: 'u' }] } });
  assert.deepEqual(['VirtualMachine', 'DataVolume', 'Pod'].map((kind) => ownerOf(owned(kind))?.name), ['o', 'o', undefined]);
});

test('words find names, namespaces and further texts, all of them', () => {
  const items = ['b', 'a10', 'a9'].map((name) => ({ metadata: { name, namespace: 'ns1' } }));
  const names = (words: string): string[] => found(items, words, (of) => [`state-of-${of.metadata.name}`]).map((of) => of.metadata.name);
  assert.deepEqual([names('').length, names('NS1 a'), names('state-of-b'), names('nothing')], [3, ['a10', 'a9', 'b'], ['b'], []]);
});
