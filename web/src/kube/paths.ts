// Addresses of the Kubernetes API. Names become single path elements, whatever they contain.

export interface Kind {
  group: string;
  version: string;
  resource: string;
  namespaced: boolean;
}

function kind(group: string, version: string, resource: string, namespaced = true): Kind {
  return { group, version, resource, namespaced };
}

export const kinds = {
  vm: kind('kubevirt.io', 'v1', 'virtualmachines'),
  vmi: kind('kubevirt.io', 'v1', 'virtualmachineinstances'),
  migration: kind('kubevirt.io', 'v1', 'virtualmachineinstancemigrations'),
  snapshot: kind('snapshot.kubevirt.io', 'v1beta1', 'virtualmachinesnapshots'),
  restore: kind('snapshot.kubevirt.io', 'v1beta1', 'virtualmachinerestores'),
  clone: kind('clone.kubevirt.io', 'v1beta1', 'virtualmachineclones'),
  dataVolume: kind('cdi.kubevirt.io', 'v1beta1', 'datavolumes'),
  dataSource: kind('cdi.kubevirt.io', 'v1beta1', 'datasources'),
  instanceType: kind('instancetype.kubevirt.io', 'v1beta1', 'virtualmachineinstancetypes'),
  clusterInstanceType: kind('instancetype.kubevirt.io', 'v1beta1', 'virtualmachineclusterinstancetypes', false),
  preference: kind('instancetype.kubevirt.io', 'v1beta1', 'virtualmachinepreferences'),
  clusterPreference: kind('instancetype.kubevirt.io', 'v1beta1', 'virtualmachineclusterpreferences', false),
  claim: kind('', 'v1', 'persistentvolumeclaims'),
  storageClass: kind('storage.k8s.io', 'v1', 'storageclasses', false),
  event: kind('', 'v1', 'events'),
  node: kind('', 'v1', 'nodes', false),
  namespace: kind('', 'v1', 'namespaces', false),
} as const;

export const subresourceGroup = 'subresources.kubevirt.io';

function root(group: string, version: string): string {
  return group === '' ? `/api/${version}` : `/apis/${group}/${version}`;
}

// Browsers resolve dots before they send a path, so that another object would be meant.
export function isName(text: string): boolean {
  return text !== '' && text !== '.' && text !== '..';
}

function element(text: string): string {
  if (!isName(text)) throw new Error(`“${text}” is no name of an object`);
  return encodeURIComponent(text);
}

// An empty namespace means all of them.
export function collection(of: Kind, namespace: string): string {
  const within = of.namespaced && namespace !== '' ? `/namespaces/${element(namespace)}` : '';
  return `${root(of.group, of.version)}${within}/${of.resource}`;
}

export function single(of: Kind, namespace: string, name: string): string {
  return `${collection(of, namespace)}/${element(name)}`;
}

export function subresource(of: Kind, namespace: string, name: string, verb: string): string {
  return single({ ...of, group: subresourceGroup, version: 'v1' }, namespace, name) + `/${verb}`;
}

export type Query = Record<string, string | undefined>;

export function withQuery(path: string, query: Query): string {
  const text = new URLSearchParams(
    Object.entries(query).filter((pair): pair is [string, string] => pair[1] !== undefined && pair[1] !== ''),
  ).toString();
  return text === '' ? path : `${path}?${text}`;
}
