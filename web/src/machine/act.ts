// The requests of the actions on a machine.
import { post, put, remove } from '../kube/client';
import { kinds, single, subresource, collection } from '../kube/paths';
import type { PlainAction, Subject } from './actions';

export interface Options {
  readOnly?: boolean;
}

function migrationOf(name: string): unknown {
  return {
    apiVersion: 'kubevirt.io/v1',
    kind: 'VirtualMachineInstanceMigration',
    metadata: { generateName: `${name.slice(0, 50)}-` },
    spec: { vmiName: name },
  };
}

export async function act(action: PlainAction, subject: Subject, options: Options = {}): Promise<void> {
  const of = subject.vm ?? subject.vmi;
  if (!of) return;
  const { name, namespace = '' } = of.metadata;
  switch (action) {
    case 'start':
    case 'stop':
    case 'restart':
      await put(subresource(kinds.vm, namespace, name, action));
      return;
    case 'migrate':
      if (subject.vm) await put(subresource(kinds.vm, namespace, name, 'migrate'));
      else await post(collection(kinds.migration, namespace), migrationOf(name));
      return;
    case 'pause':
    case 'unpause':
      await put(subresource(kinds.vmi, namespace, name, action));
      return;
    case 'cancelMigration':
      if (subject.migration) await remove(single(kinds.migration, namespace, subject.migration.metadata.name));
      return;
    case 'takeMaintenance':
      await post(subresource(kinds.vm, namespace, name, 'maintenance'), options.readOnly ? { readOnly: true } : {});
      return;
    case 'releaseMaintenance':
      await remove(subresource(kinds.vm, namespace, name, 'maintenance'));
      return;
    case 'delete':
      await remove(single(subject.vm ? kinds.vm : kinds.vmi, namespace, name));
  }
}
