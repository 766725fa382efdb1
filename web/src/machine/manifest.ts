// A manifest as it is edited: without what only the server writes.
import { parse, stringify } from 'yaml';
import type { KubeObject } from '../kube/types';

export function editable(object: KubeObject): string {
  const { status: _status, ...rest } = object as KubeObject & { status?: unknown };
  const { managedFields: _fields, ...metadata } = object.metadata;
  return stringify({ ...rest, metadata }, { lineWidth: 0 });
}

export type Parsed = { object: KubeObject } | { error: string };

export interface Identity {
  kind: string;
  name: string;
  namespace: string;
}

// The texts of faults are the caller's.
export function parseManifest(text: string, texts: { invalid: string; notObject: string }): Parsed {
  let value: unknown;
  try {
    value = parse(text, { maxAliasCount: 100 });
  } catch (error) {
    return { error: `${texts.invalid}: ${error instanceof Error ? error.message : String(error)}` };
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return { error: texts.notObject };
  const object = value as Partial<KubeObject>;
  if (typeof object.metadata !== 'object' || typeof object.metadata.name !== 'string') return { error: texts.notObject };
  return { object: object as KubeObject };
}

export function isSame(object: KubeObject, identity: Identity): boolean {
  return (
    object.kind === identity.kind &&
    object.metadata.name === identity.name &&
    object.metadata.namespace === identity.namespace
  );
}
