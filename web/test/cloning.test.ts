import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Clone } from '../src/kube/types';
import { cloneName, cloneOf, cloneSays, cloneState, isOf } from '../src/machine/cloning';
import { obstacle, rightFor } from '../src/machine/actions';

const clone = (kind: string, name: string, status?: Clone['status']): Clone => ({ metadata: { name: 'c', namespace: 'ns' }, spec: { source: { kind, name } }, status });

test('a machine and a snapshot are cloned by their own groups', () => {
  for (const [kind, apiGroup] of [['VirtualMachine', 'kubevirt.io'], ['VirtualMachineSnapshot', 'snapshot.kubevirt.io']] as const) {
    assert.deepEqual(cloneOf({ kind, name: 'a' }, 'b'), {
      apiVersion: 'clone.kubevirt.io/v1beta1', kind: 'VirtualMachineClone', metadata: { generateName: 'b-' },
      spec: { source: { apiGroup, kind, name: 'a' }, target: { apiGroup: 'kubevirt.io', kind: 'VirtualMachine', name: 'b' } },
    });
  }
});

test('a proposed name is short enough for a machine, however long its source’s is', () => {
  assert.equal(cloneName('web'), 'web-clone');
  assert.ok(cloneName('x'.repeat(200)).length <= 63);
});

test('a machine has its own clones and those of its snapshots', () => {
  const snapshots = new Set(['s1']);
  const of = (kind: string, name: string): boolean => isOf(clone(kind, name), 'm', snapshots);
  assert.deepEqual(
    [of('VirtualMachine', 'm'), of('VirtualMachine', 's1'), of('VirtualMachineSnapshot', 's1'), of('VirtualMachineSnapshot', 'm'), of('Pod', 'm')],
    [true, false, true, false, false],
  );
});

test('a clone says how far it is, or why it failed', () => {
  const conditions = [
    { type: 'Progressing', status: 'False', message: 'waits for the snapshot' }, { type: 'Ready', status: 'False', message: 'the name is taken' },
  ];
  const goes = clone('VirtualMachine', 'm', { phase: 'SnapshotInProgress', conditions });
  const failed = clone('VirtualMachine', 'm', { phase: 'Failed', conditions });
  assert.deepEqual([cloneState(goes), cloneSays(goes)], ['goes', 'waits for the snapshot']);
  assert.deepEqual([cloneState(failed), cloneSays(failed)], ['failed', 'the name is taken']);
  const new_ = clone('VirtualMachine', 'm');
  assert.deepEqual([cloneState(new_), cloneSays(new_)], ['goes', '']);
});

test('only a machine with a VM can be cloned, by the right to create clones', () => {
  const vm = { metadata: { name: 'm' }, spec: {} };
  assert.equal(obstacle('clone', { vm, vmi: undefined }), undefined);
  assert.equal(obstacle('clone', { vm: undefined, vmi: { metadata: { name: 'm' }, spec: {} } }), 'noVM');
  assert.equal(rightFor('clone', false).resource, 'virtualmachineclones');
});
