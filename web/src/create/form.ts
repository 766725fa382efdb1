// The form of a new machine, and the manifest that it means.
import { parse, stringify } from 'yaml';
import { importSpec } from '../volumes/imports';

export type DiskSource = 'containerDisk' | 'url' | 'claim' | 'dataVolume';

export interface Form {
  name: string;
  namespace: string;
  start: boolean;
  source: DiskSource;
  image: string;
  url: string;
  claim: string;
  size: string;
  storageClass: string;
  // '' or 'kind/name'
  instanceType: string;
  preference: string;
  cpus: string;
  memory: string;
  sshKeys: string;
  userData: string;
}

export type Field = keyof Form;

export function emptyForm(namespace: string): Form {
  return {
    name: '', namespace, start: true, source: 'containerDisk', image: '', url: '', claim: '', size: '10Gi', storageClass: '',
    instanceType: '', preference: '', cpus: '1', memory: '1Gi', sshKeys: '', userData: '',
  };
}

function choice(value: string): { kind: string; name: string } | undefined {
  const at = value.indexOf('/');
  return at < 0 ? undefined : { kind: value.slice(0, at), name: value.slice(at + 1) };
}

export function keysOf(text: string): string[] {
  return text.split('\n').map((line) => line.trim()).filter((line) => line !== '');
}

// cloudConfig adds keys to user data. Only a cloud-config can take them; other user data is left unchanged.
export function cloudConfig(userData: string, keys: readonly string[]): string {
  if (keys.length === 0) return userData;
  const own = userData.trim();
  if (own !== '' && !own.startsWith('#cloud-config')) return userData;
  let config: Record<string, unknown> = {};
  try {
    const parsed: unknown = own === '' ? {} : parse(own);
    if (typeof parsed === 'object' && parsed !== null && !Array.isArray(parsed)) config = parsed as Record<string, unknown>;
  } catch {
    return userData;
  }
  const before = Array.isArray(config.ssh_authorized_keys) ? (config.ssh_authorized_keys as unknown[]) : [];
  return `#cloud-config\n${stringify({ ...config, ssh_authorized_keys: [...before, ...keys] })}`;
}

// Reports whether keys of the form can't be put into its user data.
export function keysAreLost(form: Form): boolean {
  const keys = keysOf(form.sshKeys);
  return keys.length > 0 && cloudConfig(form.userData, keys) === form.userData;
}

export interface Manifest {
  apiVersion: string;
  kind: string;
  metadata: { name: string; namespace: string };
  spec: Record<string, unknown>;
}

const rootDisk = 'root';
const cloudInit = 'cloudinit';

function diskName(form: Form): string {
  return `${form.name}-root`;
}

function rootVolume(form: Form): Record<string, unknown> {
  switch (form.source) {
    case 'containerDisk': return { name: rootDisk, containerDisk: { image: form.image.trim() } };
    case 'url': return { name: rootDisk, dataVolume: { name: diskName(form) } };
    case 'claim': return { name: rootDisk, persistentVolumeClaim: { claimName: form.claim.trim() } };
    case 'dataVolume': return { name: rootDisk, dataVolume: { name: form.claim.trim() } };
  }
}

function dataVolumes(form: Form): Record<string, unknown>[] {
  if (form.source !== 'url') return [];
  return [{ metadata: { name: diskName(form) }, spec: importSpec(form.url, form.size, form.storageClass) }];
}

// A text that is no whole number is passed on, so that the server says what is wrong with it.
function numberOr(text: string): number | string {
  return /^\d{1,9}$/.test(text.trim()) ? Number(text) : text.trim();
}

function domain(form: Form): Record<string, unknown> {
  const disk = form.preference === '' ? { disk: { bus: 'virtio' } } : { disk: {} };
  const disks = [{ name: rootDisk, ...disk }];
  if (hasCloudInit(form)) disks.push({ name: cloudInit, ...disk });
  const devices = { rng: {}, disks, interfaces: [{ name: 'default', masquerade: {} }] };
  if (form.instanceType !== '') return { devices };
  return { cpu: { cores: numberOr(form.cpus) }, memory: { guest: form.memory.trim() }, devices };
}

function hasCloudInit(form: Form): boolean {
  return form.userData.trim() !== '' || keysOf(form.sshKeys).length > 0;
}

export function manifestOf(form: Form): Manifest {
  const volumes = [rootVolume(form)];
  if (hasCloudInit(form)) {
    volumes.push({ name: cloudInit, cloudInitNoCloud: { userData: cloudConfig(form.userData, keysOf(form.sshKeys)) } });
  }
  const spec: Record<string, unknown> = { runStrategy: form.start ? 'Always' : 'Halted' };
  const instanceType = choice(form.instanceType);
  const preference = choice(form.preference);
  const disks = dataVolumes(form);
  if (instanceType) spec.instancetype = instanceType;
  if (preference) spec.preference = preference;
  if (disks.length > 0) spec.dataVolumeTemplates = disks;
  spec.template = { spec: { domain: domain(form), networks: [{ name: 'default', pod: {} }], volumes } };
  return {
    apiVersion: 'kubevirt.io/v1',
    kind: 'VirtualMachine',
    metadata: { name: form.name.trim(), namespace: form.namespace },
    spec,
  };
}
