import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Condition, Migration, VM, VMI } from '../src/kube/types';
import { differences, pendingChanges, readNeeds, readRestart } from '../src/machine/pending';

const vm = (conditions: Condition[] = [], sockets = 1): VM => ({
  metadata: { name: 'web' },
  spec: { template: { spec: { domain: { cpu: { sockets } } } } },
  status: { conditions },
});
const vmi = (conditions: Condition[] = []): VMI => ({
  metadata: { name: 'web' }, spec: { domain: { cpu: { sockets: 1 } } }, status: { phase: 'Running', conditions },
});
const migration: Migration = { metadata: { name: 'm1' }, spec: { vmiName: 'web' }, status: { phase: 'Scheduling' } };

test('the message of RestartRequired is split into paths and reasons', () => {
  const message = 'these changes take effect when the VM is restarted: spec.a, spec.b, because it is fixed; spec.c; the machine says more words';
  assert.deepEqual(readRestart(message), [
    { path: 'spec.a', why: 'it is fixed' },
    { path: 'spec.b', why: 'it is fixed' },
    { path: 'spec.c', why: "it can't be changed while the guest runs; the machine says more words" },
  ]);
});

test('a message of another version is shown unchanged', () => {
  assert.deepEqual(readRestart('restart me'), [{ path: '', why: 'restart me' }]);
});

test('the needs of a migration are split, with semicolons inside a clause', () => {
  const { needs, immovable } = readNeeds('interface blue is to be plugged; with a; semicolon; the launcher pod is to have 2 CPU; the guest cannot be migrated: no target');
  assert.deepEqual(needs.map((n) => [n.path, n.what, n.room]), [
    ['spec.template.spec.domain.devices.interfaces[blue]', 'interface blue is to be plugged; with a; semicolon', false],
    ['', 'the launcher pod is to have 2 CPU', true],
  ]);
  assert.equal(immovable, 'no target');
});

test('a machine that does not run has no pending changes', () => {
  const restart: Condition = { type: 'RestartRequired', status: 'True', message: 'x' };
  assert.deepEqual(pendingChanges({ vm: vm([restart]), vmi: undefined, migrations: [] }), []);
  assert.deepEqual(pendingChanges({ vm: vm([restart]), vmi: { ...vmi(), status: { phase: 'Failed' } }, migrations: [] }), []);
});

test('live changes come first, restarts last, and the pod without room has the path of the CPUs', () => {
  const facts = {
    vm: vm([{ type: 'RestartRequired', status: 'True', message: 'these changes take effect when the VM is restarted: spec.c, because of Stage' }]),
    vmi: vmi([
      { type: 'HotVCPUChange', status: 'True', message: 'The node is giving 2 CPU.' },
      { type: 'HotMemoryChange', status: 'True', message: 'The guest gets memory.' },
      { type: 'MigrationRequired', status: 'True', message: 'the launcher pod is to have 2 CPU' },
    ]),
    migrations: [migration],
  };
  assert.deepEqual(pendingChanges(facts).map((c) => [c.path, c.effect, c.waitsFor]), [
    ['spec.template.spec.domain.memory.guest', 'live', { kind: 'says', message: 'The guest gets memory.' }],
    ['spec.template.spec.domain.cpu.sockets', 'migration', { kind: 'migration', message: 'the launcher pod is to have 2 CPU', by: 'm1', phase: 'Scheduling' }],
    ['spec.c', 'restart', { kind: 'restart', message: 'of Stage' }],
  ]);
});

test('during a migration the differences wait for its end', () => {
  const changes = pendingChanges({ vm: vm([], 2), vmi: vmi(), migrations: [migration] });
  assert.deepEqual(changes, [{
    path: 'spec.template.spec.domain.cpu.sockets', effect: 'live', waitsFor: { kind: 'afterMigration', by: 'm1', phase: 'Scheduling' },
  }]);
  const over: Migration = { ...migration, status: { phase: 'Succeeded' } };
  assert.deepEqual(pendingChanges({ vm: vm([], 2), vmi: vmi(), migrations: [over] }), []);
});

test('a node that does not follow matters only with a pending change', () => {
  const no: Condition = { type: 'Synchronized', status: 'False', message: 'the guest keeps it' };
  assert.deepEqual(pendingChanges({ vm: vm(), vmi: vmi([no]), migrations: [] }), []);
  const cpu: Condition = { type: 'HotVCPUChange', status: 'True', message: 'x' };
  assert.equal(pendingChanges({ vm: vm(), vmi: vmi([no, cpu]), migrations: [] }).length, 2);
});

test('a volume that is not plugged yet is pending', () => {
  const of: VMI = { ...vmi(), status: { phase: 'Running', volumeStatus: [{ name: 'data', phase: 'Bound', message: 'pod waits', hotplugVolume: {} }] } };
  assert.deepEqual(pendingChanges({ vm: vm(), vmi: of, migrations: [] }).map((c) => c.waitsFor), [{ kind: 'volume', phase: 'Bound', message: 'pod waits' }]);
});

test('equal amounts in other units are no difference', () => {
  assert.deepEqual(differences({ domain: { memory: { guest: '1Gi' } } }, { domain: { memory: { guest: '1024Mi' } } }), []);
  assert.deepEqual(differences({}, { domain: { memory: { guest: '1Gi' } } }), ['spec.template.spec.domain.memory.guest']);
});
