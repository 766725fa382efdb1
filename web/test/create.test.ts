import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parse } from 'yaml';
import { parseDraft } from '../src/create/draft';
import { allFaults, fieldOf, faultsOf } from '../src/create/faults';
import { cloudConfig, emptyForm, keysAreLost, manifestOf, type Form, type Manifest } from '../src/create/form';
import { Failure } from '../src/kube/failure';

const form: Form = { ...emptyForm('ns'), name: 'web', image: 'quay.io/x:1' };
interface Domain { cpu?: { cores?: unknown }; memory?: unknown; devices: { disks: { name: string }[] } }
const templateOf = (m: Manifest): { domain: Domain; volumes: Record<string, unknown>[] } =>
  (m.spec.template as { spec: { domain: Domain; volumes: Record<string, unknown>[] } }).spec;

test('the plain form is a machine with a container disk', () => {
  const m = manifestOf(form);
  assert.deepEqual([m.metadata, m.spec.runStrategy], [{ name: 'web', namespace: 'ns' }, 'Always']);
  assert.deepEqual(templateOf(m).volumes, [{ name: 'root', containerDisk: { image: 'quay.io/x:1' } }]);
  assert.deepEqual(templateOf(m).domain.cpu, { cores: 1 });
});

test('an address becomes a DataVolume that belongs to the machine', () => {
  const m = manifestOf({ ...form, source: 'url', url: 'https://x/y.qcow2', size: '5Gi', storageClass: 'fast' });
  assert.deepEqual(m.spec.dataVolumeTemplates, [{
    metadata: { name: 'web-root' },
    spec: { source: { http: { url: 'https://x/y.qcow2' } }, storage: { resources: { requests: { storage: '5Gi' } }, storageClassName: 'fast' } },
  }]);
  assert.deepEqual(templateOf(m).volumes[0], { name: 'root', dataVolume: { name: 'web-root' } });
  const registry = manifestOf({ ...form, source: 'url', url: 'docker://x/y' }).spec.dataVolumeTemplates as { spec: { source: unknown } }[];
  assert.deepEqual(registry[0]?.spec.source, { registry: { url: 'docker://x/y' } });
});

test('an instance type replaces CPUs and memory', () => {
  const m = manifestOf({ ...form, instanceType: 'VirtualMachineClusterInstancetype/u1.small', preference: 'VirtualMachinePreference/p' });
  assert.deepEqual(m.spec.instancetype, { kind: 'VirtualMachineClusterInstancetype', name: 'u1.small' });
  assert.deepEqual(m.spec.preference, { kind: 'VirtualMachinePreference', name: 'p' });
  assert.deepEqual([templateOf(m).domain.cpu, templateOf(m).domain.memory], [undefined, undefined]);
});

test('a text that is no number reaches the server, which says what is wrong with it', () => {
  assert.equal(templateOf(manifestOf({ ...form, cpus: 'two' })).domain.cpu?.cores, 'two');
  assert.equal(templateOf(manifestOf({ ...form, cpus: '12' })).domain.cpu?.cores, 12);
});

test('keys become user data, beside what the user wrote', () => {
  assert.equal(cloudConfig('', ['ssh-ed25519 A']), '#cloud-config\nssh_authorized_keys:\n  - ssh-ed25519 A\n');
  const both = cloudConfig('#cloud-config\nhostname: x\nssh_authorized_keys: [old]\n', ['new']);
  assert.ok(both.startsWith('#cloud-config\n'));
  assert.deepEqual(parse(both), { hostname: 'x', ssh_authorized_keys: ['old', 'new'] });
});

test('user data that can’t take keys is left unchanged, and the form knows', () => {
  for (const userData of ['#!/bin/sh\necho', '#cloud-config\n{', 'Content-Type: multipart/mixed']) {
    assert.equal(cloudConfig(userData, ['k']), userData);
    assert.equal(keysAreLost({ ...form, userData, sshKeys: 'k' }), true);
  }
  assert.equal(keysAreLost({ ...form, sshKeys: 'k' }), false);
});

const url: Form = { ...form, source: 'url' };
const places: [string, Form, string | undefined][] = [
  ['metadata.name', form, 'name'],
  ['spec.template.spec.domain.memory.guest', form, 'memory'],
  ['spec.template.spec.domain.cpu.cores', form, 'cpus'],
  ['spec.template.spec.domain.resources.requests.memory', form, 'memory'],
  ['spec.template.spec.domain.memory.guest', { ...form, instanceType: 'a/b' }, 'instanceType'],
  ['spec.template.spec.volumes[0].containerDisk.image', form, 'image'],
  ['spec.template.spec.volumes[0].persistentVolumeClaim', { ...form, source: 'claim' }, 'claim'],
  ['spec.template.spec.volumes[1].cloudInitNoCloud.userData', { ...form, userData: 'x' }, 'userData'],
  ['spec.template.spec.volumes[1].cloudInitNoCloud.userData', { ...form, sshKeys: 'x' }, 'sshKeys'],
  ['spec.dataVolumeTemplates[0].spec.source.http.url', url, 'url'],
  ['spec.dataVolumeTemplates[0].spec.storage.resources.requests.storage', url, 'size'],
  ['spec.dataVolumeTemplates[0].spec.storage.storageClassName', url, 'storageClass'],
  ['spec.instancetype.name', { ...form, instanceType: 'a/b' }, 'instanceType'],
  ['spec.template.spec.domain.devices.tpm', form, undefined],
  ['', form, undefined],
];
for (const [path, of, want] of places) {
  test(`a fault of ${path === '' ? 'no path' : path} is at ${want ?? 'no field'}`, () => {
    assert.equal(fieldOf(path, of), want);
  });
}

const refusal = (...causes: { field: string; message: string }[]): Failure => new Failure(422, 'Invalid', 'no', causes);

test('a failure without causes is one fault', () => {
  assert.deepEqual(faultsOf(new Failure(409, 'AlreadyExists', 'exists'), form), [{ field: undefined, path: '', message: 'exists' }]);
});

const say = (what: string): string => what;

test('a bad name does not hide the other faults', async () => {
  const asked: string[] = [];
  const faults = await allFaults({ ...form, name: 'Bad_Name' }, say, (m) => {
    asked.push(m.metadata.name);
    const bad = m.metadata.name === 'Bad_Name';
    return Promise.resolve(bad ? refusal({ field: 'metadata.name', message: 'bad name' }) : refusal({ field: 'spec.template.spec.domain.memory.guest', message: 'too little' }));
  });
  assert.deepEqual(faults.map((f) => [f.field, f.message]), [['name', 'bad name'], ['memory', 'too little']]);
  assert.equal(asked.length, 2);
});

test('faults of other fields are asked for once', async () => {
  let asked = 0;
  const faults = await allFaults(form, say, () => {
    asked++;
    return Promise.resolve(refusal({ field: 'spec.template.spec.domain.cpu.cores', message: 'x' }));
  });
  assert.deepEqual([faults.length, asked], [1, 1]);
});

test('what the server can’t decode is told at its field, with the server’s faults of the rest', async () => {
  const bad: Form = { ...form, name: '', memory: 'a lot', cpus: 'two', source: 'url', url: 'x', size: '' };
  const faults = await allFaults(bad, say, (m) => {
    assert.deepEqual(templateOf(m).domain.cpu, { cores: 1 });
    return Promise.resolve(refusal({ field: 'spec.dataVolumeTemplates[0].spec.source.http.url', message: 'no address' }));
  });
  assert.deepEqual(faults.map((f) => [f.field, f.message]), [
    ['name', 'noName'], ['cpus', 'noNumber'], ['memory', 'noAmount'], ['size', 'noAmount'], ['url', 'no address'],
  ]);
});

test('fields that are not used have no faults', async () => {
  const faults = await allFaults({ ...form, instanceType: 'a/b', memory: '', cpus: '', size: '' }, say, () => Promise.resolve(undefined));
  assert.deepEqual(faults, []);
});

test('without a namespace the server can’t be asked', async () => {
  const faults = await allFaults({ ...form, namespace: '' }, say, () => assert.fail('asked'));
  assert.deepEqual(faults.map((f) => f.message), ['noNamespace']);
});

test('a draft keeps only what the form has', () => {
  const empty = emptyForm('ns');
  assert.deepEqual(parseDraft(JSON.stringify({ name: 'a', cpus: 5, evil: 'x', source: 'other' }), empty), { ...empty, name: 'a' });
  for (const bad of [null, '{', '5', 'null', '[]']) assert.deepEqual(parseDraft(bad, empty), empty);
});
